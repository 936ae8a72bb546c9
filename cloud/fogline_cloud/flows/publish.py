"""Derived records to Kafka, from the worker that made them."""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from confluent_kafka import KafkaError, Producer

from fogline.errors import Unreachable
from fogline_cloud.flows.derive import Message
from fogline_cloud.kafka import KafkaClients, mapped
from fogline_cloud.settings import Scalar

LIMIT_S = 60.0
"""How long a record may take until all replicas have it."""


def publish(kafka: Mapping[str, Scalar], records: Iterable[Message]) -> None:
    """Produce them all; returns when Kafka has them. Raises `Unreachable` if it does not take them in `LIMIT_S`."""
    producer, failed = _producer(tuple(kafka.items()))
    failed.clear()
    with mapped("a derived topic"):
        for each in records:
            _produce(producer, each)
        producer.flush()
    if failed:
        raise Unreachable(f"Kafka does not take derived records: {failed[0].str()}")


def _produce(producer: Producer, record: Message) -> None:
    while True:
        try:
            producer.produce(record.topic, record.value, record.key, headers=record.headers)
        except BufferError:
            producer.poll(0.1)
        else:
            return


@cache
def _producer(kafka: tuple[tuple[str, Scalar], ...]) -> tuple[Producer, list[KafkaError]]:
    """This process's producer, and what could not be delivered. Kept: a worker lives for many micro-batches."""
    failed: list[KafkaError] = []

    def report(error: KafkaError, _message: Any) -> None:
        failed.append(error)

    return KafkaClients(dict(kafka)).publisher(report, LIMIT_S), failed
