"""Makes another Kafka take the place of a lost one.

The records of the other Kafka are those of table `raw`, or a mirror has brought them. From them, and from the tables, come the
high-water marks, so that what gateways send again lands once; and the positions of the flow, so that it parses no record twice.

Each step can be repeated: what is there already is not written again. No bridge and no flow may run meanwhile; a bridge that
runs all the same is fenced, and takes its shards back, which ends the command.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from fogline.address import shard_of
from fogline.errors import Misconfigured
from fogline.events.event import Lane
from fogline.events.gap import Gap, GapReason, gap_event
from fogline_cloud.flows.start.flow_state import FlowState, read_states, set_positions
from fogline_cloud.flows.tables.files import tables_in
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.clients import KafkaClients, Partition, ids_of
from fogline_cloud.kafka.committed_records import CommittedRecord, read_committed
from fogline_cloud.kafka.records import COPIED, REBUILT, REPLAYED, StreamPosition, known_position, record_of
from fogline_cloud.ledger.ranges import Span
from fogline_cloud.rebuild.held import HeldRecords, TableProgress
from fogline_cloud.rebuild.raw_records import RawRecords
from fogline_cloud.rebuild.shards import Shards
from fogline_cloud.rebuild.state_records import lacking_state
from fogline_cloud.rebuild.tables import events_progress
from fogline_cloud.settings import CloudSettings
from fogline_cloud.shard.admission import StreamKey, StreamState
from fogline_cloud.shard.checkpoint import stream_entry
from fogline_cloud.shard.pace import MOST_BYTES
from fogline_cloud.shard.producer import RECORD_BYTES
from fogline_cloud.shard.recovery import read_checkpoint
from fogline_cloud.shard.topic_admin import check_topics
from fogline_cloud.store.options import storage_of

STEP_RECORDS = 1_000_000
"""Records that are read from one message of progress to the next."""
WHY = "these events are in table events; Kafka lost their records before table raw or a mirror had them"

Found = tuple[Partition, StreamPosition, CommittedRecord]


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


@dataclass(frozen=True, slots=True)
class Lacking:
    """The records that another Kafka has and this one lacks. `streams`: sequences by gateway, stream and lane.

    `state`: by topic, the number of records of the registry, the commands and the audit.
    """

    streams: list[tuple[str, str, str, list[Span]]]
    state: dict[str, int]


def compare(settings: CloudSettings, other: CloudSettings, on_step: Callable[[str], None]) -> Lacking:
    """Return what another Kafka has and this one lacks. Raises `Misconfigured`, `Unreachable`."""
    clients, former = KafkaClients(settings.kafka), KafkaClients(other.kafka)
    _require_another(clients, settings.tenant, former, other.tenant)
    here, lacks = _held(clients, settings.tenant, {}, on_step), HeldRecords({})
    for partition, position, _ in _lacking(here, former, other.tenant, on_step):
        lacks.add(partition, position)
    return Lacking(lacks.streams(), lacking_state(clients, settings.tenant, former, other.tenant))


def rebuild(
    settings: CloudSettings, *, from_raw: bool = False, other: CloudSettings | None = None, on_step: Callable[[str], None]
) -> Rebuilt:
    """Rebuild records, marks and positions in the Kafka of the settings. Raises `Misconfigured`, `Unreachable`.

    `from_raw`: records of table `raw` that it lacks. `other`: those of the streams of another Kafka.
    """
    clients, tenant, result = KafkaClients(settings.kafka), settings.tenant, Rebuilt()
    topics.require([topic.name for topic in topics.all_topics(tenant, settings.shards)], clients.topics())
    with Shards(clients, tenant, settings.shards) as shards:
        if problems := check_topics(clients, settings):  # after the fence: `topics reshard` takes no shard unnoticed then
            raise Misconfigured(problems[0])
        if from_raw:
            _write_records(settings, clients, shards, result, on_step)
        if other is not None:
            _copy_records(settings, other, shards, result, on_step)
        states = {state.table: state for state in read_states(settings)}
        if not states:
            on_step(f"there are no tables in {settings.flow.tables}: marks come from the records alone, and no position is set")
        progress = _progress(settings, states)
        held = _held(clients, tenant, progress, on_step)
        _write_marks(settings, shards, held, progress.get("events", TableProgress()), result)
        on_step(f"{len(result.replaced)} gap records, {result.marked} high-water marks")
        if result.replaced:
            held = _held(clients, tenant, progress, on_step)
        for name, state in states.items():
            found = held.positions(name, state.bounds)
            # Positions in this Kafka, from an earlier run or of the flow, are exact: places of clients' records are known once.
            result.positions[name] = {each: max(offset, state.kept.get(each, 0)) for each, offset in found.items()}
            set_positions(state, result.positions[name])
    return result


def _progress(settings: CloudSettings, states: Mapping[str, FlowState]) -> dict[str, TableProgress]:
    """Return how far each table has the records."""
    found = {}
    if events := states.get("events"):
        found["events"] = events_progress(events.takeover.logs[0], events.owner)
    if "raw" in states:
        found["raw"] = _raw_of(settings).tails()
    return found


def _require_another(here: KafkaClients, tenant: str, other: KafkaClients, others_tenant: str) -> None:
    """Raise `Misconfigured` if both settings files lead to the same topics: nothing would be missing there."""
    raw, others = topics.raw_topics(tenant), topics.raw_topics(others_tenant)
    topics.require(raw, here.topics())
    topics.require(others, other.topics())
    if set(ids_of(here.describe(raw)).values()) & set(ids_of(other.describe(others)).values()):
        raise Misconfigured(f"both settings files lead to the same topic {raw[0]}: check [kafka] in both")


def _raw_of(settings: CloudSettings) -> RawRecords:
    return RawRecords(tables_in(settings.flow.tables, storage_of(settings)).raw, settings.tenant)


def _read(clients: KafkaClients, tenant: str, on_step: Callable[[str], None]) -> Iterator[CommittedRecord]:
    """Yield the records of the raw topics, of all partitions that they have."""
    partitions = clients.topics()
    places = [(topic, number) for topic in topics.raw_topics(tenant) for number in range(partitions[topic])]
    for count, record in enumerate(read_committed(clients, dict.fromkeys(places), lean=True), 1):
        yield record
        if count % STEP_RECORDS == 0:
            on_step(f"{count:,} records of Kafka are read")


def _held(
    clients: KafkaClients, tenant: str, tables: Mapping[str, TableProgress], on_step: Callable[[str], None]
) -> HeldRecords:
    held = HeldRecords(tables)
    for record in _read(clients, tenant, on_step):
        held.take((record.topic, record.partition), record.offset, record.headers, record.value)
    return held


def _write_records(
    settings: CloudSettings, clients: KafkaClients, shards: Shards, result: Rebuilt, on_step: Callable[[str], None]
) -> None:
    """Write the records of `raw` that Kafka lacks. Of records without a stream, the first ones of a partition are there."""
    there = _held(clients, settings.tenant, {}, on_step)
    clients_there, ends = dict(there.clients), dict(there.ends)
    for records in _raw_of(settings).read():
        for record in records:
            partition, position = (record.topic, record.partition), known_position(record.headers, record.value)
            if position is None and clients_there.get(partition, 0) > 0:
                clients_there[partition] -= 1
            elif position is None or not there.has(position):
                if partition in ends:
                    raise _landed_since(partition, ends[partition])
                shards.write(record.topic, record.partition, record.key, record.value, record.headers)
                there.add(partition, position)
                result.records += 1
                continue
            elif position == ends.get(partition):
                del ends[partition]
            result.there += 1
        shards.commit()
        on_step(f"{result.records:,} records of table raw are written, {result.there:,} were there")


def _landed_since(partition: Partition, last: StreamPosition) -> Misconfigured:
    """Return the error for a partition that does not end with a record of `raw`. The order of `raw` cannot be kept there."""
    place = f"{last.last} of stream {last.stream} of gateway {last.gateway}"
    return Misconfigured(
        f"{partition[0]}[{partition[1]}]: its last record, {place}, is not in table raw: a bridge has run since Kafka was "
        "lost. Run this again without --from-raw: then Kafka lacks the records of raw, and the tables get all events"
    )


def _copy_records(
    settings: CloudSettings, other: CloudSettings, shards: Shards, result: Rebuilt, on_step: Callable[[str], None]
) -> None:
    """Write the records of streams that another Kafka has, marked as replayed.

    No transaction is open while the other Kafka is read: that may take longer than Kafka lets one be open.
    """
    clients, former = KafkaClients(settings.kafka), KafkaClients(other.kafka)
    _require_another(clients, settings.tenant, former, other.tenant)
    here = _held(clients, settings.tenant, {}, on_step)
    for group in _groups(_lacking(here, former, other.tenant, on_step)):
        for (_, shard), position, record in group:
            headers = [each for each in record.headers if each[0] != REPLAYED]
            topic = topics.of_lane(position.lane, settings.tenant)
            shards.write(topic, shard, record.key, record.value, [*headers, (REPLAYED, b"true"), (COPIED, b"true")])
        shards.commit()
        result.records += len(group)
        on_step(f"{result.records:,} records of the other Kafka are written")


def _groups(found: Iterable[Found]) -> Iterator[list[Found]]:
    """Yield records by groups of as many bytes as a transaction may have."""
    group: list[Found] = []
    size = 0
    for each in found:
        group.append(each)
        size += len(each[2].value) + RECORD_BYTES
        if size >= MOST_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def _lacking(here: HeldRecords, former: KafkaClients, tenant: str, on_step: Callable[[str], None]) -> Iterator[Found]:
    for record in _read(former, tenant, on_step):
        position = known_position(record.headers, record.value)
        if position is not None and not here.has(position):
            yield (record.topic, record.partition), position, record


def _write_marks(settings: CloudSettings, shards: Shards, held: HeldRecords, events: TableProgress, result: Rebuilt) -> None:
    """Write what lets each owner of a shard know the high-water marks. A mark that its checkpoint has is left as it is."""
    clients, tenant = KafkaClients(settings.kafka), settings.tenant
    marks = [read_checkpoint(clients, tenant, shard).streams for shard in range(settings.shards)]
    known = {key: state.hwm for each in marks for key, state in each.items()}
    for key, lane, last in _ahead(held, known, events):
        gateway, stream = key
        shard, there = shard_of(gateway, settings.shards), held.last(key)
        if there:
            gap = Gap(GapReason.REBUILT, there + 1, last, WHY)
            event = gap_event(
                gap, tenant=tenant, gateway=gateway, stream=stream, lane=lane, now_ns=time.time_ns(), replayed=True
            )
            record = record_of(event)
            headers = [*record.headers, (REBUILT, b"true")]
            shards.write(topics.of_lane(lane, tenant), shard, record.key, record.value, headers)
            result.replaced.append((gateway, stream, lane.value, (there + 1, last)))
        else:
            _write_mark(settings, shards, key, lane, last)
            result.marked += 1
    for key, found in held.shards.items():
        if found != {shard_of(key[0], settings.shards)} and known.get(key, 0) < held.last(key):
            _write_mark(settings, shards, key, held.lanes[key], held.last(key))
            result.marked += 1
    shards.commit()


def _write_mark(settings: CloudSettings, shards: Shards, key: StreamKey, lane: Lane, last: int) -> None:
    """Write the checkpoint entry of a stream to its shard."""
    gateway, stream = key
    now_ms = time.time_ns() // 1_000_000
    state = StreamState(gateway=gateway, stream=stream, lane=lane, hwm=last, landed=last, changed_ms=now_ms)
    shards.write(topics.checkpoint(settings.tenant), shard_of(gateway, settings.shards), *stream_entry(state))


def _ahead(held: HeldRecords, known: Mapping[StreamKey, int], events: TableProgress) -> Iterator[tuple[StreamKey, Lane, int]]:
    """Yield the streams of which the tables have more than Kafka. `known`: the marks that it has."""
    for key, tail in sorted(events.streams().items()):
        if tail.last > max(held.last(key), known.get(key, 0)):
            yield key, held.lanes.get(key, tail.lane), tail.last
