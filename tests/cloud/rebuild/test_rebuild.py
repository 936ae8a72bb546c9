"""Kafka is lost, and a new one gets the records of table `raw`, the high-water marks and the flow's positions."""

from contextlib import suppress
from datetime import UTC, datetime
from itertools import count, pairwise

import msgspec
import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from deltalake import DeltaTable, write_deltalake

from fogline.address import shard_of
from fogline.errors import Misconfigured, Unreachable
from fogline.events.event import Lane
from fogline_cloud.flows.start.flow_state import read_states
from fogline_cloud.flows.tables import schema
from fogline_cloud.flows.tables.schema import arrow_schema
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.clients import KafkaClients, ids_of
from fogline_cloud.kafka.records import record_of
from fogline_cloud.ledger.balance import judge
from fogline_cloud.ledger.sources import gather
from fogline_cloud.rebuild import rebuild as rebuild_steps
from fogline_cloud.rebuild.rebuild import Lacking, compare, rebuild
from fogline_cloud.rebuild.shards import Shards
from fogline_cloud.rebuild.state_records import STATE_TOPICS
from fogline_cloud.shard.admission import StreamState
from fogline_cloud.shard.checkpoint import stream_entry
from fogline_cloud.shard.producer import ShardProducer
from fogline_cloud.shard.recovery import recover
from fogline_cloud.shard.topic_admin import create_topics
from fogline_lab.events import NOW_NS, make_event
from fogline_lab.ledger_site import AIR, ALARMS, SHARDS, YARD, make_site, stream_of

NEW = "00000000000000dd"
IN_RAW, IN_EVENTS = 50, 27
"""Table `raw` has AIR up to the first one, `events` has YARD up to the second one, and all of AIR."""


@pytest.fixture
def site(kafka, folder):
    """A site of two shards, whose topics have an event of a client behind each stream."""
    return with_flow(make_site(kafka.bootstrap, folder / "tables"), folder)


def with_flow(made, folder):
    """The site with a flow, whose tables have rows of its tenant."""
    DeltaTable(str(made.tables / "events")).update({"tenant": f"'{made.settings.tenant}'"})
    flow = msgspec.structs.replace(made.settings.flow, tables=str(made.tables), checkpoint=str(folder / "checkpoint"))
    return type(made)(msgspec.structs.replace(made.settings, flow=flow), made.tables)


def write_raw(site, ids) -> None:
    """Write table `raw` as the flow does, in the order in which the records came, but without the tail of AIR."""
    rows = []
    for number, record in enumerate(site.records()):
        headers = dict(record.headers)
        if headers.get("ce_stream") == AIR.encode() and int(headers["ce_sequence"]) > IN_RAW:
            continue
        place = {"topic": record.topic, "partition": record.partition, "offset": record.offset}
        stored = {"value": record.value, "headers": [{"key": key, "value": value} for key, value in record.headers]}
        ingested = datetime.fromtimestamp(NOW_NS // 10**9 + number, UTC)
        run = {"tenant": site.settings.tenant, "flow": "main", "run": "run-1", "batch": 0, "day": ingested.date()}
        rows.append({**place, **stored, **run, "ingested": ingested, "topic_id": ids[record.topic]})
    columns = arrow_schema(schema.RAW)
    write_deltalake(str(site.tables / "raw"), pa.Table.from_pylist(rows, columns), mode="append", partition_by=["day"])


def lose_kafka(site) -> None:
    """Delete all topics of the tenant, and create them again, as in a new cluster."""
    clients, names = KafkaClients(site.settings.kafka), [each.name for each in topics.all_topics(site.settings.tenant, SHARDS)]
    former = ids_of(clients.describe(names))
    admin = AdminClient(dict(site.settings.kafka))
    for future in admin.delete_topics(names, operation_timeout=60).values():
        future.result(60)
    for _ in range(300):  # each try waits for Kafka's answer
        with suppress(Unreachable):
            create_topics(clients, site.settings, 1)
            if not set(former.values()) & set(ids_of(clients.describe(names)).values()):
                return
    pytest.fail("the topics are not created again")


def sequences(site) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for record in site.records():
        headers = dict(record.headers)
        found.setdefault(headers.get("ce_stream", b"").decode(), []).append(int(headers.get("ce_sequence", b"0")))
    return found


@pytest.mark.fault("K29")
def test_a_new_kafka_gets_the_records_of_raw_and_marks_that_know_what_the_tables_have(site):
    tenant, clients = site.settings.tenant, KafkaClients(site.settings.kafka)
    client = record_of(make_event(0, tenant=tenant, id="by-a-client", gateway="", stream=""))
    site.produce([(topics.telemetry(tenant), 1, client)])
    before = [(each.topic, each.partition, each.key, each.value, each.headers) for each in site.records()]
    write_raw(site, ids_of(clients.describe(topics.raw_topics(tenant))))
    site.delete("events", YARD, IN_EVENTS + 1, 31)
    site.delete("readings", YARD, IN_EVENTS + 1, 31)
    lose_kafka(site)

    found = rebuild(site.settings, from_raw=True, on_step=lambda _: None)

    there = sequences(site)
    kept = [number for number in range(1, IN_RAW + 1) if number not in (41, 42)]
    assert there == {AIR: [*kept, 61], ALARMS: [*range(1, 22)], YARD: [*range(1, 32)], "": [0]}
    restored = [(each.topic, each.partition, each.key, each.value, each.headers) for each in site.records()]
    assert [each for each in restored if each in before] == [each for each in before if each in restored], "the order is kept"
    assert found.replaced == [("gw-1", AIR, "telemetry", (IN_RAW + 1, 61))]
    marks = {key[1]: state.hwm for shard in range(SHARDS) for key, state in recover(clients, tenant, shard).known.items()}
    assert marks == {AIR: 61, ALARMS: 21, YARD: 31}
    lags = {state.table: {place: lag for place, lag in state.lag.items() if lag > 1} for state in read_states(site.settings)}
    assert lags == {"events": {(topics.telemetry(tenant), 1): 31 - IN_EVENTS + 2}, "raw": {}}
    streams = gather(clients, site.settings).streams
    assert [finding for each in streams for finding in judge(each)] == []
    assert {each.stream: each.pending for each in streams} == {AIR: [], ALARMS: [], YARD: [(IN_EVENTS + 1, 31)]}

    again = rebuild(site.settings, from_raw=True, on_step=lambda _: None)

    assert (again.records, again.replaced, sequences(site)) == (0, [], there)
    assert again.positions == found.positions


@pytest.mark.fault("K29")
def test_a_stream_from_before_more_shards_has_its_mark_in_its_new_shard(kafka, folder):
    """Its records stay in the partition of the former shard."""
    made = make_site(kafka.bootstrap, folder / "tables", [])
    home, tenant = shard_of("gw-1", SHARDS), made.settings.tenant
    events = [msgspec.structs.replace(each, tenant=tenant) for each in stream_of("gw-1", AIR, Lane.TELEMETRY, 9)]
    made.produce([(topics.telemetry(tenant), 1 - home, record_of(each)) for each in events])
    flow, steps = msgspec.structs.replace(made.settings.flow, tables=str(folder / "none")), list[str]()
    rebuild(msgspec.structs.replace(made.settings, flow=flow), on_step=steps.append)
    assert f"there are no tables in {folder / 'none'}" in steps[0]
    assert recover(KafkaClients(made.settings.kafka), tenant, home).known["gw-1", AIR].hwm == 10


@pytest.mark.fault("K29")
@pytest.mark.parametrize("home", [0, 1])
def test_flow_goes_on_in_each_partition_of_a_stream_that_was_resharded(kafka, folder, home):
    """Of the former shard's part table `events` lacks the last record, though it has the new shard's part."""
    made = make_site(kafka.bootstrap, folder / "tables", [])
    gateway = next(name for name in map("gw-{}".format, count(1)) if shard_of(name, SHARDS) == home)
    tenant, clients = made.settings.tenant, KafkaClients(made.settings.kafka)
    events = [msgspec.structs.replace(each, tenant=tenant) for each in stream_of(gateway, AIR, Lane.TELEMETRY, 9)]
    shards = [1 - home] * 5 + [home] * 5
    made.produce([(topics.telemetry(tenant), shard, record_of(each)) for each, shard in zip(events, shards, strict=True)])
    made.fill()
    site = with_flow(made, folder)
    write_raw(site, ids_of(clients.describe(topics.raw_topics(tenant))))
    site.delete("events", AIR, 5, 5)
    lose_kafka(site)

    found = rebuild(site.settings, from_raw=True, on_step=lambda _: None)

    telemetry = topics.telemetry(tenant)
    assert {stream: sorted(each) for stream, each in sequences(site).items()} == {AIR: [*range(1, 11)]}
    ends = {(each.topic, each.partition): each.offset + 1 for each in site.records()}
    assert {each: found.positions["raw"][each] for each in ends} == ends
    behind = {each: ends[each] - found.positions["events"][each] for each in ends}
    assert behind == {(telemetry, home): 0, (telemetry, 1 - home): 1}


@pytest.mark.parametrize("sequence", [1, 12])
def test_a_mark_that_a_bridge_has_written_stays_with_what_it_knows(kafka, folder, sequence):
    """The stream went on after more shards, or its records have gone by retention: a repeated command takes nothing from it."""
    made = make_site(kafka.bootstrap, folder / "tables", [])
    home, tenant, clients = shard_of("gw-1", SHARDS), made.settings.tenant, KafkaClients(made.settings.kafka)
    of_bridge = StreamState(gateway="gw-1", stream=AIR, lane=Lane.TELEMETRY, hwm=12, landed=9, chain="ab", chain_sequence=12)
    with Shards(clients, tenant, SHARDS) as shards:
        shards.write(topics.checkpoint(tenant), home, *stream_entry(of_bridge))
        shards.commit()
    event = make_event(sequence, tenant=tenant, gateway="gw-1", stream=AIR)
    made.produce([(topics.telemetry(tenant), 1 - home, record_of(event))])
    flow = msgspec.structs.replace(made.settings.flow, tables=str(folder / "none"))
    rebuild(msgspec.structs.replace(made.settings, flow=flow), on_step=lambda _: None)
    assert recover(clients, tenant, home).known["gw-1", AIR] == of_bridge


@pytest.mark.fault("K31")
def test_what_only_the_former_kafka_has_is_named_and_can_be_brought(site):
    """A mirror was behind: of two streams it lacks the end, of one everything."""

    def behind(records):
        return [each for each in records if stream_and_sequence(each) not in lost]

    lost = {(AIR, number) for number in (60, 61)} | {(YARD, 31)} | {(ALARMS, number) for number in range(1, 22)}
    mirror = site.with_topics(behind)

    named = {
        (stream, n)
        for _, stream, _, spans in compare(mirror.settings, site.settings, print).streams
        for a, b in spans
        for n in range(a, b + 1)
    }
    assert named == lost
    assert rebuild(mirror.settings, other=site.settings, on_step=lambda _: None).records == len(lost)
    assert sequences(mirror) == sequences(site)
    brought = [dict(each.headers) for each in mirror.records() if stream_and_sequence(each) in lost]
    assert {each["ce_replayed"] for each in brought} == {b"true"}
    assert compare(mirror.settings, site.settings, print).streams == []
    assert rebuild(mirror.settings, other=site.settings, on_step=lambda _: None).records == 0
    streams = gather(KafkaClients(mirror.settings.kafka), mirror.settings).streams
    assert [finding for each in streams for finding in judge(each)] == []


def produced_again(site, records) -> None:
    """Write records into the tenant's topics, as a mirror does."""
    site.produce([(each.topic, each.partition, each) for each in records])


def land_new_stream(site, *sequences: int) -> None:
    """A bridge lands this of a gateway that has opened a stream, because the bridge had less than it had accepted."""
    events = stream_of("gw-1", NEW, Lane.TELEMETRY, max(sequences))
    own = [msgspec.structs.replace(each, tenant=site.settings.tenant) for each in events if each.sequence in sequences]
    site.produce([(topics.telemetry(site.settings.tenant), 0, record_of(each)) for each in own])


def unread(site, table: str) -> set[tuple[str, int]]:
    """The records that the flow has before it for a table, by stream and sequence."""
    positions = {state.table: state.positions for state in read_states(site.settings)}[table]
    left = [each for each in site.records() if each.offset >= positions[each.topic, each.partition]]
    return {stream_and_sequence(each) for each in left}


@pytest.mark.fault("K31")
def test_a_bridge_that_ran_before_the_command_has_landed_nothing_that_the_flow_passes_over(site):
    """The mirror lacks the end of a stream that the tables have, and a gateway went on in a new one: its gap record is last."""
    mirrored = [each for each in site.records() if stream_and_sequence(each) not in {(AIR, 60), (AIR, 61)}]
    lose_kafka(site)
    produced_again(site, mirrored)
    land_new_stream(site, 1, 2)
    assert rebuild(site.settings, on_step=lambda _: None).replaced == [("gw-1", AIR, "telemetry", (60, 61))]
    assert unread(site, "events") >= {(NEW, 1), (NEW, 2)}


@pytest.mark.fault("K29")
def test_records_of_raw_are_not_written_behind_those_of_a_bridge(site):
    """The flow would go on behind what it has, and pass over what the bridge has landed."""
    write_raw(site, ids_of(KafkaClients(site.settings.kafka).describe(topics.raw_topics(site.settings.tenant))))
    lose_kafka(site)
    land_new_stream(site, 1, 2)
    with pytest.raises(Misconfigured, match=r"telemetry.*\[0\]: .* a bridge has run .* without --from-raw"):
        rebuild(site.settings, from_raw=True, on_step=lambda _: None)
    rebuild(site.settings, on_step=lambda _: None)
    assert unread(site, "events") >= {(NEW, 1), (NEW, 2)}


@pytest.mark.fault("K29")
@pytest.mark.parametrize("commits", [1, 2, 3])
def test_a_command_that_was_killed_in_the_records_of_raw_goes_on(site, monkeypatch, commits):
    """It was killed at one of its commits, of which the first ones are by shard."""
    write_raw(site, ids_of(KafkaClients(site.settings.kafka).describe(topics.raw_topics(site.settings.tenant))))
    before = [stream_and_sequence(each) for each in site.records()]
    lose_kafka(site)
    left, commit = [commits], ShardProducer.commit

    def killed(producer):
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return commit(producer)

    with monkeypatch.context() as patched:
        patched.setattr(ShardProducer, "commit", killed)
        with pytest.raises(KeyboardInterrupt):
            rebuild(site.settings, from_raw=True, on_step=lambda _: None)
    rebuild(site.settings, from_raw=True, on_step=lambda _: None)
    lost = {(AIR, number) for number in range(IN_RAW + 1, 61)}
    assert [stream_and_sequence(each) for each in site.records()] == [each for each in before if each not in lost]
    assert [unread(site, table) for table in ("events", "raw")] == [set(), set()]


@pytest.mark.fault("K29")
def test_a_repeated_command_sets_no_position_back_before_a_record_of_a_client(site):
    """It has no stream: it is known by its place in the former topic alone, and that is known to the first run alone."""
    tenant = site.settings.tenant
    client = record_of(make_event(0, tenant=tenant, id="by-a-client", gateway="", stream=""))
    site.produce([(topics.telemetry(tenant), 1, client)])
    stored = site.records()
    offset = next(each.offset for each in stored if "ce_stream" not in dict(each.headers))
    (row,) = site.rows("events", YARD, 31)
    nothing = {"stream": None, "gateway": None, "sequence": None, "first_sequence": None, "lane": None}
    site.append("events", [{**row, **nothing, "tenant": tenant, "offset": offset}])
    lose_kafka(site)
    produced_again(site, stored)
    found = [rebuild(site.settings, on_step=lambda _: None).positions["events"] for _ in range(2)]
    assert found[0] == found[1]
    assert unread(site, "events") == set()


@pytest.mark.fault("K31")
def test_a_bridge_that_runs_ends_the_command_which_says_so(site):
    with Shards(KafkaClients(site.settings.kafka), site.settings.tenant, SHARDS) as shards:
        bridge = ShardProducer(KafkaClients(site.settings.kafka), site.settings.tenant, 0)
        bridge.fence()
        for shard in range(SHARDS):
            shards.write(topics.checkpoint(site.settings.tenant), shard, b"-", None)
        with pytest.raises(Unreachable, match=r"shard 0: .*\. Stop bridges and other runs of `fogline topics`, and run"):
            shards.commit()
        bridge.destroy()


def test_no_transaction_is_open_while_another_kafka_is_read(site, monkeypatch):
    """Kafka ends one that is open for long, and the other Kafka may have days of records behind the first one to copy."""
    mirror = site.with_topics(lambda records: [each for each in records if stream_and_sequence(each) != (AIR, 60)])
    steps: list[str] = []
    read, write, commit = rebuild_steps.read_committed, Shards.write, Shards.commit

    def noted_reading(*arguments, **more):
        for each in read(*arguments, **more):
            steps.append("read")
            yield each

    def noted(step, method):
        def run(*arguments):
            steps.append(step)
            return method(*arguments)

        return run

    monkeypatch.setattr(rebuild_steps, "read_committed", noted_reading)
    monkeypatch.setattr(Shards, "write", noted("write", write))
    monkeypatch.setattr(Shards, "commit", noted("commit", commit))
    rebuild(mirror.settings, other=site.settings, on_step=lambda _: None)
    assert "write" in steps
    assert ("write", "read") not in set(pairwise(steps))


@pytest.mark.parametrize("shards", [1, 3])
def test_another_number_of_shards_is_refused_before_anything_is_written(site, shards):
    with pytest.raises(Misconfigured, match=f"shards = {shards}, but the topics of .* have 2; set shards = 2"):
        rebuild(msgspec.structs.replace(site.settings, shards=shards), on_step=lambda _: None)


def test_a_comparison_with_the_same_kafka_says_so_and_reads_all_partitions_of_the_other_one(site):
    """The answer "nothing is missing" lets an operator give up the former site."""
    with pytest.raises(Misconfigured, match="lead to the same topic hono"):
        compare(site.settings, site.settings, print)
    with pytest.raises(Misconfigured, match="lead to the same topic hono"):
        rebuild(site.settings, other=site.settings, on_step=print)
    mirror = site.with_topics(lambda records: [each for each in records if each.partition == 0])
    assert {each[1] for each in compare(mirror.settings, msgspec.structs.replace(site.settings, shards=1), print).streams} == {
        YARD
    }


@pytest.mark.fault("K31")
def test_a_comparison_names_what_the_mirror_lacks_of_registry_commands_and_audit(kafka, folder):
    former, mirror = (make_site(kafka.bootstrap, folder / each, []) for each in ("former", "mirror"))
    producer = Producer(dict(former.settings.kafka))
    for name in STATE_TOPICS:
        producer.produce(name(former.settings.tenant), b"value", b"key", 0)
    assert producer.flush(60) == 0
    lacking = {name(mirror.settings.tenant): 1 for name in STATE_TOPICS}
    assert compare(mirror.settings, former.settings, print) == Lacking([], lacking)


def stream_and_sequence(record) -> tuple[str, int]:
    headers = dict(record.headers)
    return headers.get("ce_stream", b"").decode(), int(headers.get("ce_sequence", b"0"))
