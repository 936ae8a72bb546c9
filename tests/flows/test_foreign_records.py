"""Records that a foreign producer wrote into the raw topics: each becomes a row, and none ends the flow."""

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fogline.dead_letter import DEAD_CONTENT_TYPE
from fogline.events.gap import GAP_CONTENT_TYPE
from fogline.gateway.ledger import STATEMENT_CONTENT_TYPE
from fogline_cloud.flows.driver.commit import suspected_span
from fogline_cloud.flows.tables.batch import MicroBatch
from fogline_cloud.flows.tables.files import FileWriter, TableFolder, span_of, statistics
from fogline_cloud.flows.tables.schema import MEASURED, STORED
from fogline_cloud.flows.worker import derive
from fogline_cloud.flows.worker.parse import Plan, parse
from fogline_cloud.kafka import records
from property_tests import at_most

KAFKA_LIMIT_BYTES = 1_000_000
"""librdkafka's `message.max.bytes`."""
PLAN = Plan(tenant="t", limit_s=60, parsers={})
DEEP = b"[" * 100_000
BROKEN = [
    b"",
    b"{}",
    b"[]",
    b"null",
    b"\xff\xfe",
    b'"\xff"',
    b'{"reason": "\xff"}',
    b'{"stream": "\xff"}',
    b'{"first": "x", "last": []}',
    DEEP,
    b'{"x":' + DEEP,
]
OURS = [GAP_CONTENT_TYPE, STATEMENT_CONTENT_TYPE, DEAD_CONTENT_TYPE, "application/json"]
EXTREME = [
    b"",
    b"\xff",
    b"0",
    b"-1",
    b"9" * 30,
    b"9" * 5000,
    b"0001-01-01T00:00:00Z",
    b"9999-12-31T23:59:59.999999Z",
    b"x" * 70_000,
]


def rows_of(given, ingested_us=1_700_000_000_000_000):
    """The rows of records as a worker makes them. `given`: headers and value of each."""
    count = len(given)
    headers = [None if pairs is None else [{"key": key, "value": value} for key, value in pairs] for pairs, _ in given]
    arrays = [
        pa.array(["topic"] * count),
        pa.array([0] * count, pa.int32()),
        pa.array(range(count), pa.int64()),
        pa.array([ingested_us] * count, pa.timestamp("us", tz="UTC")),
        pa.array([value for _, value in given], pa.binary()),
        pa.array(headers, pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
    batch = pa.RecordBatch.from_arrays(arrays, names=["topic", "partition", "offset", "ingested", "value", "headers"])
    (out,) = parse(PLAN, MicroBatch("main", "run", 0), [batch])
    return out


def messages(rows):
    table = pa.Table.from_batches([rows], STORED)
    return list(derive.derived_records(table, "t"))


def changed(event, **headers):
    """An event's record with some of its headers changed; `None` leaves one out, `...` makes its value null."""
    record = records.record_of(event)
    values = {**dict(record.headers), **{name.replace("__", "-"): value for name, value in headers.items()}}
    return [(name, None if value is ... else value) for name, value in values.items() if value is not None], record.value


@pytest.mark.parametrize("content_type", OURS)
@pytest.mark.parametrize("body", [*BROKEN, None], ids=lambda body: repr(body)[:20])
def test_no_body_of_our_own_content_types_ends_the_flow(make_event, content_type, body):
    headers, _ = changed(make_event(), content__type=content_type.encode())
    rows = rows_of([(headers, body), changed(make_event(b"17"))])
    assert rows.column("outcome").to_pylist()[1] == "ok", "the honest device's event lands"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=at_most(150), deadline=None)
@given(data=st.data())
def test_no_header_ends_the_flow(make_event, data):
    event = make_event(b"17", time="2026-01-02T03:04:05Z", properties="{}", dedup="shared")
    names = [name for name, _ in records.record_of(event).headers] + ["ce_replayed", "status", "ttd", "ce_commandid"]
    value = st.sampled_from([None, ..., *EXTREME, *(each.encode() for each in OURS)]) | st.binary(max_size=40)
    wrong = data.draw(st.dictionaries(st.sampled_from(names), value, min_size=1, max_size=4))
    rows = rows_of([changed(event, **wrong), changed(make_event(b"17"))])
    assert rows.column("outcome").to_pylist()[1] == "ok", "the honest device's event lands"
    assert all(len(each.value) + header_bytes(each) < KAFKA_LIMIT_BYTES for each in messages(rows))


def header_bytes(message):
    return len(message.key or b"") + sum(len(name) + len(value) for name, value in message.headers)


@pytest.mark.parametrize("kept", ["readable", "unreadable"])
def test_a_record_with_long_headers_fits_into_the_derived_topics(make_event, kept):
    """Each is as long as Kafka takes; before, the flow tried for ever to send a dead letter that Kafka refuses."""
    long = (
        {"ce_subject": b"s" * 900_000} if kept == "readable" else {"device_id": b"d" * 900_000, "ce_source": b"\xff" * 300_000}
    )
    rows = rows_of([changed(make_event(b"17"), **long), changed(make_event(b"17"))])
    made = messages(rows)
    assert rows.column("outcome").to_pylist() == ["dead", "ok"]
    assert {len(each.value) + header_bytes(each) < KAFKA_LIMIT_BYTES for each in made} == {True}
    assert rows.column("sequence").to_pylist() == [1, 2], "its number does not look lost"


@pytest.mark.parametrize("ingested_us", [-(2**62), -1, 0, 2**62])
def test_a_record_may_have_any_timestamp(make_event, ingested_us, folder):
    foreign = [("device_id", b"d-1")], b"17"
    rows = rows_of([foreign, (None, b"x")], ingested_us)
    with FileWriter(TableFolder(str(folder)), MEASURED["events"]) as writer:
        writer.add(rows)
        assert len(writer.close()) == 1


@pytest.mark.parametrize("moment", [b"0001-01-01T00:00:00Z", b"9999-12-31T23:59:59.999999Z"])
def test_the_first_and_the_last_time_can_be_searched_for(make_event, moment, folder):
    """Events that several gateways heard are looked for by their time, with a window before and after it."""
    rows = rows_of([changed(make_event(b"17"), ce_recordedtime=moment, ce_dedup=b"shared")])
    table = TableFolder(str(folder / "events"))
    DeltaTable.create(table.uri, STORED.append(pa.field("day", pa.date32())), partition_by=["day"])
    with FileWriter(table, MEASURED["events"]) as writer:
        writer.add(rows)
        files = writer.close()
    first, last = suspected_span(files, [])
    assert first <= last
    assert statistics(rows, ("recordedtime",))["numRecords"] == 1
    assert span_of(files, "recordedtime")[0].year == int(moment[:4])
