"""Makes another Kafka take the place of a lost one.

The records of the other Kafka are those of table `raw`, or a mirror has brought them. From them, and from the tables, come the
high-water marks, so that what gateways send again lands once; and the positions of the flow, so that it parses no record twice.

Each step can be repeated: what is there already is not written again. No bridge and no flow may run meanwhile; a bridge that
runs all the same is fenced, and takes its shards back, which ends the command.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from fogline.address import shard_of
from fogline.events.event import Lane
from fogline.events.gap import Gap, GapReason, gap_event
from fogline_cloud.flows.start.flow_state import read_states, set_positions
from fogline_cloud.flows.tables.files import tables_in
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.clients import KafkaClients, Partition
from fogline_cloud.kafka.committed_records import CommittedRecord, read_committed
from fogline_cloud.kafka.records import COPIED, REBUILT, REPLAYED, StreamPosition, known_position, record_of
from fogline_cloud.ledger.ranges import Span
from fogline_cloud.rebuild.held import HeldRecords, StreamPart, StreamTail, TableProgress
from fogline_cloud.rebuild.raw_records import RawRecords
from fogline_cloud.rebuild.shards import Shards
from fogline_cloud.rebuild.tables import events_progress
from fogline_cloud.settings import CloudSettings
from fogline_cloud.shard.admission import StreamKey, StreamState
from fogline_cloud.shard.checkpoint import stream_entry
from fogline_cloud.store.options import storage_of

WHY = "these events are in table events; Kafka lost their records before table raw or a mirror had them"


@dataclass(slots=True)
class Rebuilt:
    """Result. `records`: written from `raw` or another Kafka. `there`: already in Kafka.

    `positions`: by table, where the flow goes on.
    `replaced`: sequences, by gateway, stream and lane, of which only the tables have the events. A gap record stands for them.
    `marked`: streams of which their shard lacks records: Kafka has none, or they are from before `fogline topics reshard`.
    Their high-water mark is written by itself.
    """

    records: int = 0
    there: int = 0
    replaced: list[tuple[str, str, str, Span]] = field(default_factory=list)
    marked: int = 0
    positions: dict[str, dict[Partition, int]] = field(default_factory=dict)


def compare(settings: CloudSettings, other: CloudSettings) -> list[tuple[str, str, str, list[Span]]]:
    """Return the sequences that another Kafka has and this one lacks, by gateway, stream and lane. Raises `Unreachable`."""
    here, lacks = _held(settings, KafkaClients(settings.kafka), {}), HeldRecords({})
    for partition, position, _ in _lacking(here, other):
        lacks.add(partition, position)
    return lacks.streams()


def rebuild(
    settings: CloudSettings, *, from_raw: bool = False, other: CloudSettings | None = None, on_step: Callable[[str], None]
) -> Rebuilt:
    """Rebuild records, marks and positions in the Kafka of the settings. Raises `Misconfigured`, `Unreachable`.

    `from_raw`: records of table `raw` that it lacks. `other`: those of the streams of another Kafka.
    """
    clients, tenant = KafkaClients(settings.kafka), settings.tenant
    topics.require([topic.name for topic in topics.all_topics(tenant, settings.shards)], clients.topics())
    result, states = Rebuilt(), {state.table: state for state in read_states(settings)}
    events = states.get("events")
    known = events_progress(events.takeover.logs[0], events.owner) if events else TableProgress()
    with Shards(clients, tenant, settings.shards) as shards:
        if from_raw:
            _write_records(settings, clients, shards, result, on_step)
        if other is not None:
            _copy_records(settings, clients, shards, other, result)
        held = _held(settings, clients, {})
        _write_marks(settings, shards, held, known.tails, result)
        on_step(f"{len(result.replaced)} gap records, {result.marked} high-water marks")
        progress = {}
        if events is not None:
            progress["events"] = known
        if "raw" in states:
            progress["raw"] = _raw_of(settings).tails(_partitions(settings))
        held = _held(settings, clients, progress)
        for name in progress:
            result.positions[name] = held.positions(name, [*states[name].bounds])
            set_positions(states[name], result.positions[name])
    return result


def _raw_of(settings: CloudSettings) -> RawRecords:
    return RawRecords(tables_in(settings.flow.tables, storage_of(settings)).raw, settings.tenant)


def _partitions(settings: CloudSettings) -> list[Partition]:
    return [(topic, shard) for topic in topics.raw_topics(settings.tenant) for shard in range(settings.shards)]


def _held(settings: CloudSettings, clients: KafkaClients, tables: Mapping[str, TableProgress]) -> HeldRecords:
    held = HeldRecords(tables)
    for record in read_committed(clients, dict.fromkeys(_partitions(settings)), lean=True):
        held.take((record.topic, record.partition), record.offset, record.headers, record.value)
    return held


def _write_records(
    settings: CloudSettings, clients: KafkaClients, shards: Shards, result: Rebuilt, on_step: Callable[[str], None]
) -> None:
    """Write the records of `raw` that Kafka lacks. Of records without a stream, the first ones of a partition are there."""
    there = _held(settings, clients, {})
    clients_there = dict(there.clients)
    for records in _raw_of(settings).read():
        for record in records:
            partition, position = (record.topic, record.partition), known_position(record.headers, record.value)
            if position is None and clients_there.get(partition, 0) > 0:
                clients_there[partition] -= 1
            elif position is None or not there.has(position):
                shards.write(record.topic, record.partition, record.key, record.value, record.headers)
                there.add(partition, position)
                result.records += 1
                continue
            result.there += 1
        shards.commit()
        on_step(f"{result.records} records of table raw are written, {result.there} were there")


def _copy_records(
    settings: CloudSettings, clients: KafkaClients, shards: Shards, other: CloudSettings, result: Rebuilt
) -> None:
    """Write the records of streams that another Kafka has, marked as replayed."""
    for (_, shard), position, record in _lacking(_held(settings, clients, {}), other):
        headers = [each for each in record.headers if each[0] != REPLAYED]
        topic = topics.of_lane(position.lane, settings.tenant)
        shards.write(topic, shard, record.key, record.value, [*headers, (REPLAYED, b"true"), (COPIED, b"true")])
        result.records += 1
    shards.commit()


def _lacking(here: HeldRecords, other: CloudSettings) -> Iterator[tuple[Partition, StreamPosition, CommittedRecord]]:
    clients = KafkaClients(other.kafka)
    topics.require(topics.raw_topics(other.tenant), clients.topics())
    for record in read_committed(clients, dict.fromkeys(_partitions(other)), lean=True):
        position = known_position(record.headers, record.value)
        if position is not None and not here.has(position):
            yield (record.topic, record.partition), position, record


def _write_marks(
    settings: CloudSettings, shards: Shards, held: HeldRecords, tails: Mapping[StreamPart, StreamTail], result: Rebuilt
) -> None:
    for key, lane, last in _ahead(held, tails):
        gateway, stream = key
        shard, there = shard_of(gateway, settings.shards), held.last(key)
        if there:
            gap = Gap(GapReason.REBUILT, there + 1, last, WHY)
            event = gap_event(
                gap, tenant=settings.tenant, gateway=gateway, stream=stream, lane=lane, now_ns=time.time_ns(), replayed=True
            )
            record = record_of(event)
            headers = [*record.headers, (REBUILT, b"true")]
            shards.write(topics.of_lane(lane, settings.tenant), shard, record.key, record.value, headers)
            result.replaced.append((gateway, stream, lane.value, (there + 1, last)))
        else:
            _write_mark(settings, shards, key, lane, last)
            result.marked += 1
    for key, found in held.shards.items():
        if found != {shard_of(key[0], settings.shards)}:
            _write_mark(settings, shards, key, held.lanes[key], held.last(key))
            result.marked += 1
    shards.commit()


def _write_mark(settings: CloudSettings, shards: Shards, key: StreamKey, lane: Lane, last: int) -> None:
    """Write the checkpoint entry of a stream to its shard."""
    gateway, stream = key
    now_ms = time.time_ns() // 1_000_000
    state = StreamState(gateway=gateway, stream=stream, lane=lane, hwm=last, landed=last, changed_ms=now_ms)
    shards.write(topics.checkpoint(settings.tenant), shard_of(gateway, settings.shards), *stream_entry(state))


def _ahead(held: HeldRecords, tails: Mapping[StreamPart, StreamTail]) -> Iterator[tuple[StreamKey, Lane, int]]:
    """Yield the streams of which the tables have more than Kafka."""
    ends: dict[StreamKey, StreamTail] = {}
    for (_, key), tail in tails.items():
        if key not in ends or tail.last > ends[key].last:
            ends[key] = tail
    for key, end in sorted(ends.items()):
        if end.last > held.last(key):
            yield key, held.lanes.get(key, end.lane), end.last
