"""Every committed record of some partitions, to the high watermark.

The first end of a partition is not believed: under read_committed it is the last stable offset, which an open
transaction keeps early.
"""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from fogline.errors import Unreachable
from fogline_cloud.kafka import KafkaClients, end_offset, mapped

READ_LIMIT_S = 60.0
"""Without any progress for so long, reading is given up."""

_log = logging.getLogger("fogline.kafka")


@dataclass(frozen=True, slots=True)
class Stored:
    """One committed record."""

    topic: str
    partition: int
    offset: int
    key: bytes
    value: bytes
    headers: list[tuple[str, bytes]]


def read_committed(
    clients: KafkaClients, starts: Mapping[tuple[str, int], int | None], *, stable: bool = False
) -> Iterator[Stored]:
    """Every committed record of the partitions, from the offset given (`None`: the beginning) to the high watermark.

    That waits for the end of every open transaction, be it by its time-out; `stable`: only to where the first begins.

    A partition that no longer holds its start (its records were deleted by retention, or the topic was created again) is
    read from its first offset, with a warning. Raises `Unreachable`.
    """
    probe = clients.reader(committed=stable)
    try:
        bounds = {place: end_offset(probe, *place) for place in starts}
    finally:
        probe.close()
    begin: dict[tuple[str, int], int] = {}
    for place, start in starts.items():
        low, high = bounds[place]
        first = low if start is None else start
        if not low <= first <= high:
            _log.warning(
                "%s[%d]: the checkpoint ends at offset %d, but Kafka holds offsets %d to %d only. Records were deleted before "
                "they were counted. Gateways that sent them open new streams. Check the topic's retention.",
                *(*place, first, low, high),
            )
            first = low
        if first < high:
            begin[place] = first
    if begin:
        reader = clients.reader()
        try:
            yield from _read_until(reader, begin, {place: bounds[place][1] for place in begin})
        finally:
            reader.close()


def _read_until(reader: Consumer, begin: dict[tuple[str, int], int], end: dict[tuple[str, int], int]) -> Iterator[Stored]:
    reader.assign([TopicPartition(*place, offset) for place, offset in begin.items()])
    position = dict(begin)
    deadline = time.monotonic() + READ_LIMIT_S
    while behind := [place for place, offset in position.items() if offset < end[place]]:
        if time.monotonic() > deadline:
            place = behind[0]
            raise Unreachable(f"{place[0]}[{place[1]}]: read to {position[place]}, the high watermark is {end[place]}")
        with mapped("reading back"):
            messages = reader.consume(2000, 0.2)
        for message in messages:
            place = (message.topic(), message.partition())
            error = message.error()
            if error is None:
                position[place] = message.offset() + 1
                deadline = time.monotonic() + READ_LIMIT_S
                yield Stored(
                    *place, message.offset(), message.key() or b"", message.value() or b"", with_values(message.headers())
                )
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's name for it
                position[place] = max(position[place], message.offset())  # control records are never returned
            elif not error.retriable():
                with mapped("reading back"):
                    raise KafkaException(error)


def with_values(headers: Sequence[tuple[str, bytes | None]] | None) -> list[tuple[str, bytes]]:
    """The headers of a record that have a value. Kafka allows null, which means as much as no header here."""
    return [(name, value) for name, value in headers or () if value is not None]
