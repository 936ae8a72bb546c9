"""What is committed in a shard, read from the records themselves, to the high watermark.

Called only after the fence (`init_transactions`), so that nobody else can commit there any more. The first end of a
partition is not believed: under read_committed it is the last stable offset, which an open transaction keeps early.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from fogline.errors import Misconfigured, Unreachable
from fogline_cloud import topics
from fogline_cloud.bridge.admission import Known, StreamKey
from fogline_cloud.bridge.checkpoint import Checkpoint, read_entries
from fogline_cloud.bridge.kafka import KafkaClients, end_offset, mapped
from fogline_cloud.records import Place, place_of

READ_LIMIT_S = 60.0
"""Without any progress for so long, reading is given up."""


@dataclass(frozen=True, slots=True)
class Stored:
    """One committed record."""

    topic: str
    partition: int
    offset: int
    key: bytes
    value: bytes
    headers: list[tuple[str, bytes]]


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a shard holds. `position`: by topic, the offset up to which `known` is true."""

    known: dict[StreamKey, Known]
    position: dict[str, int]
    checkpoint: Checkpoint


def read_committed(clients: KafkaClients, starts: Mapping[tuple[str, int], int | None]) -> Iterator[Stored]:
    """Every committed record of the partitions, from the offset given (`None`: the beginning) to the high watermark.

    Raises `Unreachable`; `Misconfigured` if a start lies below what Kafka still has.
    """
    probe = clients.reader(committed=False)
    try:
        bounds = {place: end_offset(probe, *place) for place in starts}
    finally:
        probe.close()
    begin: dict[tuple[str, int], int] = {}
    for place, start in starts.items():
        low, high = bounds[place]
        if start is not None and start < low:
            what = f"{place[0]}[{place[1]}] begins at offset {low}, but has to be read from {start}"
            raise Misconfigured(f"{what}: records were deleted before they were counted; raise the topic's retention")
        if (low if start is None else start) < high:
            begin[place] = low if start is None else start
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
                yield Stored(*place, message.offset(), message.key() or b"", message.value() or b"", message.headers() or [])
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's name for it
                position[place] = max(position[place], message.offset())  # control records are never returned
            elif not error.retriable():
                with mapped("reading back"):
                    raise KafkaException(error)


def read_checkpoint(clients: KafkaClients, tenant: str, shard: int) -> Checkpoint:
    """The checkpoint of one shard."""
    stored = read_committed(clients, {(topics.checkpoint(tenant), shard): None})
    return read_entries((record.key, record.value) for record in stored)


def recover(clients: KafkaClients, tenant: str, shard: int, on_record: Callable[[], None] = lambda: None) -> Recovered:
    """Rebuild the knowledge of a shard: the checkpoint, then every record after it, in all the lanes' topics."""
    checkpoint = read_checkpoint(clients, tenant, shard)
    known = dict(checkpoint.streams)
    position = dict(checkpoint.position)
    starts = {(topic, shard): checkpoint.position.get(topic) for topic in topics.raw_topics(tenant)}
    for record in read_committed(clients, starts):
        on_record()
        position[record.topic] = record.offset + 1
        place = place_of(record.headers, record.value)
        if place is not None:
            learn(known, place)
    return Recovered(known, position, checkpoint)


def learn(known: dict[StreamKey, Known], place: Place) -> None:
    """Take one committed record into account. Records below what is known change nothing."""
    entry = known.setdefault((place.gateway, place.stream), Known(gateway=place.gateway, stream=place.stream, lane=place.lane))
    if place.last > entry.hwm:
        entry.landed += place.last - max(entry.hwm, place.first - 1)
        entry.hwm = place.last
    if place.chain is not None and place.last > entry.chain_sequence:
        entry.chain_sequence = place.last
        entry.chain = place.chain.hex()
