"""Sends derived records to Kafka, from a worker or the driver."""

from collections.abc import Iterable, Mapping
from functools import cache

from confluent_kafka import KafkaError, Message, Producer

from fogline.errors import Unreachable
from fogline_cloud.flows.worker.derive import DerivedRecord
from fogline_cloud.kafka.clients import KafkaClients, mapped
from fogline_cloud.settings import Scalar

LIMIT_S = 60.0
"""Largest time until all replicas have a record."""


def publish(kafka: Mapping[str, Scalar], records: Iterable[DerivedRecord]) -> None:
    """Produce all records, and return when Kafka has them. Raises `Unreachable` if Kafka does not take one in `LIMIT_S`."""
    producer, failed = _producer(tuple(kafka.items()))
    failed.clear()
    with mapped("a derived topic"):
        for each in records:
            _produce(producer, each)
        producer.flush()
    if failed:
        raise Unreachable(
            f"Kafka does not take derived records of {failed[0]}. If that topic is missing, run: fogline topics create"
        )


def _produce(producer: Producer, record: DerivedRecord) -> None:
    while True:
        try:
            producer.produce(record.topic, record.value, record.key, headers=record.headers)
        except BufferError:
            producer.poll(0.1)
        else:
            return


@cache
def _producer(kafka: tuple[tuple[str, Scalar], ...]) -> tuple[Producer, list[str]]:
    """Return this process's producer and its list of delivery errors, kept for many micro-batches. For one thread of it."""
    failed: list[str] = []

    def report(error: KafkaError, message: Message) -> None:
        failed.append(f"{message.topic()}: {error.str()}")

    return KafkaClients(dict(kafka)).publisher(report, LIMIT_S), failed
