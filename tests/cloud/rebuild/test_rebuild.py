"""Kafka is lost, and a new one gets the records of table `raw`, the high-water marks and the flow's positions."""

from contextlib import suppress
from datetime import UTC, datetime
from itertools import count

import msgspec
import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient
from deltalake import DeltaTable, write_deltalake

from fogline.address import shard_of
from fogline.errors import Unreachable
from fogline.events.event import Lane
from fogline_cloud.flows.start.flow_state import read_states
from fogline_cloud.flows.tables import schema
from fogline_cloud.flows.tables.schema import arrow_schema
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.clients import KafkaClients, ids_of
from fogline_cloud.kafka.records import record_of
from fogline_cloud.ledger.balance import judge
from fogline_cloud.ledger.sources import gather
from fogline_cloud.rebuild.rebuild import compare, rebuild
from fogline_cloud.shard.recovery import recover
from fogline_cloud.shard.topic_admin import create_topics
from fogline_lab.events import NOW_NS, make_event
from fogline_lab.ledger_site import AIR, ALARMS, SHARDS, YARD, make_site, stream_of

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
    flow = msgspec.structs.replace(made.settings.flow, tables=str(folder / "none"))
    rebuild(msgspec.structs.replace(made.settings, flow=flow), on_step=lambda _: None)
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


@pytest.mark.fault("K31")
def test_what_only_the_former_kafka_has_is_named_and_can_be_brought(site):
    """A mirror was behind: of two streams it lacks the end, of one everything."""

    def behind(records):
        return [each for each in records if stream_and_sequence(each) not in lost]

    lost = {(AIR, number) for number in (60, 61)} | {(YARD, 31)} | {(ALARMS, number) for number in range(1, 22)}
    mirror = site.with_topics(behind)

    named = {
        (stream, n)
        for _, stream, _, spans in compare(mirror.settings, site.settings)
        for a, b in spans
        for n in range(a, b + 1)
    }
    assert named == lost
    assert rebuild(mirror.settings, other=site.settings, on_step=lambda _: None).records == len(lost)
    assert sequences(mirror) == sequences(site)
    brought = [dict(each.headers) for each in mirror.records() if stream_and_sequence(each) in lost]
    assert {each["ce_replayed"] for each in brought} == {b"true"}
    assert compare(mirror.settings, site.settings) == []
    assert rebuild(mirror.settings, other=site.settings, on_step=lambda _: None).records == 0
    streams = gather(KafkaClients(mirror.settings.kafka), mirror.settings).streams
    assert [finding for each in streams for finding in judge(each)] == []


def stream_and_sequence(record) -> tuple[str, int]:
    headers = dict(record.headers)
    return headers["ce_stream"].decode(), int(headers["ce_sequence"])
