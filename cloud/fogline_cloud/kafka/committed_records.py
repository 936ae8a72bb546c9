"""Reads all committed records of partitions up to the high watermark, which a `read_committed` consumer does not report."""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from fogline.errors import Unreachable
from fogline_cloud.kafka.clients import KafkaClients, Partition, mapped

READ_LIMIT_S = 60.0
"""Time without progress after which reading fails."""

_log = logging.getLogger("fogline.kafka")


class CommittedRecord(msgspec.Struct, frozen=True):
    """One committed record."""

    topic: str
    partition: int
    offset: int
    key: bytes
    value: bytes
    headers: list[tuple[str, bytes]]
    time_ms: int = 0  # the record's time in Kafka, where its reader asks for it


def read_committed(
    clients: KafkaClients, starts: Mapping[Partition, int | None], *, stable: bool = False, lean: bool = False
) -> Iterator[CommittedRecord]:
    """Yield every committed record, from the given offset of each partition (None: the first one) to the high watermark.

    Waits for the end of open transactions; with `stable`, ends where the first one begins. With `lean`, few records are in
    memory. Raises `Unreachable`.
    """
    bounds = clients.bounds(starts, committed=stable)
    begin: dict[Partition, int] = {}
    for partition, start in starts.items():
        low, high = bounds[partition]
        first = low if start is None else start
        if not low <= first <= high:
            _log.warning(
                "%s[%d]: the checkpoint ends at offset %d, but Kafka holds offsets %d to %d only. Records were deleted before "
                "they were counted. Gateways that sent them open new streams. Check the topic's retention.",
                *(*partition, first, low, high),
            )
            first = low
        if first < high:
            begin[partition] = first
    if begin:
        reader = clients.reader(lean=lean)
        try:
            yield from _read_until(reader, begin, {partition: bounds[partition][1] for partition in begin})
        finally:
            reader.close()


def _read_until(reader: Consumer, begin: dict[Partition, int], end: dict[Partition, int]) -> Iterator[CommittedRecord]:
    reader.assign([TopicPartition(*partition, offset) for partition, offset in begin.items()])
    position = dict(begin)
    deadline = time.monotonic() + READ_LIMIT_S
    while behind := [partition for partition, offset in position.items() if offset < end[partition]]:
        if time.monotonic() > deadline:
            topic, number = late = behind[0]
            raise Unreachable(f"{topic}[{number}]: read up to offset {position[late]}, but the high watermark is {end[late]}")
        with mapped("reading back"):
            messages = reader.consume(2000, 0.2)
        for message in messages:
            partition = (message.topic(), message.partition())
            error = message.error()
            if error is None:
                position[partition] = message.offset() + 1
                deadline = time.monotonic() + READ_LIMIT_S
                headers, (_, time_ms) = with_values(message.headers()), message.timestamp()
                yield CommittedRecord(
                    *partition, message.offset(), message.key() or b"", message.value() or b"", headers, time_ms
                )
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's name for it
                position[partition] = max(position[partition], message.offset())  # control records are never returned
            elif not error.retriable():
                with mapped("reading back"):
                    raise KafkaException(error)


def with_values(headers: Sequence[tuple[str, bytes | None]] | None) -> list[tuple[str, bytes]]:
    """Return the headers that have a value. Kafka allows null, which Fogline treats like a missing header."""
    return [(name, value) for name, value in headers or () if value is not None]
