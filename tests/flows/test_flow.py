"""The flow with a real Kafka and a real Spark; tables are read back without Spark."""

import shutil
import threading
from collections import Counter
from collections.abc import Callable

import msgspec
import pytest
from deltalake import DeltaTable

from flows.crashes import crash_at
from flows.tenant_flow import Flow, canonical_readings
from fogline.dead_letter import DEAD_CONTENT_TYPE, DeadLetter
from fogline.errors import Misconfigured
from fogline.events.event import Event, Lane
from fogline.events.gap import Gap, GapReason, gap_event
from fogline.gateway.ledger import STATEMENT_CONTENT_TYPE, Counts, Statement, encode_statement
from fogline_cloud.flows.driver import parsed_sink
from fogline_cloud.flows.driver.query import Query
from fogline_cloud.flows.tables import schema
from fogline_cloud.kafka import records, topics

MakeEvent = Callable[..., Event]
STREAM = "00000000000000aa"


def sequences(flow: Flow, table: str) -> list[int]:
    return [row["sequence"] for row in flow.rows(table)]


TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACED = f"traceparent=no&room=&traceparent={TRACE}"


@pytest.mark.fault("D7")
def test_every_committed_record_gets_its_row_and_its_topics(flow: Flow, make_event: MakeEvent) -> None:
    flow.hurry()
    tenant = flow.settings.tenant
    letter = DeadLetter(reason="bad-identifier", detail="no such device", sender="'x'", channel="'y'", body_base64="")
    stamp = {"tenant": tenant, "gateway": "gw-1", "stream": STREAM, "lane": Lane.TELEMETRY, "now_ns": 1_700_000_000_000_000_000}
    events = [
        make_event(b'{"t": 21.5, "state": "on"}', time="2026-01-02T03:04:00Z", tenant=tenant, properties=TRACED),
        make_event(b"17", content_type="text/plain", subject="plant/t", tenant=tenant, lane=Lane.ALARM),
        make_event(b'[{"n":"x","u":"Cel","v":1,"t":1700000000}]', content_type="application/senml+json", tenant=tenant),
        make_event(b"\x89PNG", content_type="image/png", tenant=tenant),
        make_event(b'{"a": 1, "a": 2}', tenant=tenant),
        make_event(b"z", content_type="application/x-endless", tenant=tenant),
        make_event(b"w", content_type="application/x-wrong", tenant=tenant),
        make_event(b"r", content_type="application/x-again", tenant=tenant),
        make_event(
            encode_statement(Statement(STREAM, "telemetry", Counts(stored=8))),
            content_type=STATEMENT_CONTENT_TYPE,
            tenant=tenant,
        ),
        make_event(msgspec.json.encode(letter), content_type=DEAD_CONTENT_TYPE, device="gw-1", tenant=tenant),
        gap_event(Gap(GapReason.DROPPED, 11, 14, "full"), **stamp),
        gap_event(Gap(GapReason.REFUSED, 15, 15, "not allowed", body_base64="eA=="), **stamp),
    ]
    flow.land(events)
    flow.land([make_event(b"999", sequence=99, tenant=tenant)], commit=False)
    flow.land([records.KafkaRecord(b"d-7", b"5", [("device_id", b"d-7")])], partition=1)

    batches = flow.run()

    expected = {"ok": 4, "skip": 1, "dead": 3, "slow": 2, "statement": 1, "gap": 2}
    assert sum((Counter(batch.outcomes) for batch in batches), Counter()) == expected
    rows = {row["sequence"]: row for row in flow.rows("events")}
    assert list(rows[1]) == schema.names(schema.EVENTS)
    assert {number: (row["outcome"], row["reason"]) for number, row in rows.items()} == {
        None: ("ok", None),
        1: ("ok", None),
        2: ("ok", None),
        3: ("ok", None),
        4: ("skip", "no-parser"),
        5: ("dead", "not-understood"),
        6: ("slow", "timeout"),
        7: ("dead", "parser-error"),
        8: ("slow", "retry"),
        9: ("statement", None),
        10: ("dead", "bad-identifier"),
        14: ("gap", "dropped"),
        15: ("gap", "refused"),
    }
    assert (rows[14]["first_sequence"], rows[14]["source"]) == (11, f"/{tenant}/devices/gw-1")
    assert (rows[2]["topic"], rows[2]["lane"]) == (topics.event(tenant), "alarm")
    assert "LookupError: the table of this device is empty" in rows[7]["detail"]
    assert (rows[1]["data"], rows[5]["data"], rows[4]["data"]) == (None, b'{"a": 1, "a": 2}', b"\x89PNG")
    assert (dict(rows[1]["properties"]), rows[2]["properties"]) == ({"traceparent": TRACE, "room": ""}, None)
    _check_readings(flow, tenant)
    _check_topics(flow, tenant)


def _check_readings(flow: Flow, tenant: str) -> None:
    readings = flow.rows("readings")
    assert list(readings[0]) == schema.names(schema.READINGS)
    assert [(r["sequence"], r["ordinal"], r["metric"], r["value"], r["text"], r["unit"]) for r in readings] == [
        (None, 0, "value", 5.0, None, None),
        (1, 0, "t", 21.5, None, None),
        (1, 1, "state", None, "on", None),
        (2, 0, "plant/t", 17.0, None, None),
        (3, 0, "x", 1.0, None, "Cel"),
    ]
    times = {reading["sequence"]: reading["time"].isoformat() for reading in readings}
    assert times[1] == "2026-01-02T03:04:00+00:00", "the event's own time"
    assert times[2] == "2026-01-02T03:04:05.000006+00:00", "when it was recorded"
    assert times[3] == "2023-11-14T22:13:20+00:00", "the reading's own time"
    canonical = canonical_readings(flow)
    assert Counter((each["source"], each["id"], each["ordinal"]) for each in canonical) == Counter(
        (each["source"], each["id"], each["ordinal"]) for each in readings
    )
    assert next(each for each in canonical if each["metric"] == "x")["time"] == "2023-11-14T22:13:20.000000Z"


def _check_topics(flow: Flow, tenant: str) -> None:
    dead = {
        (headers.get("ce_sequence"), headers["fogline_reason"]): (key, value)
        for key, value, headers in flow.derived(topics.dead(tenant))
    }
    assert dead.keys() == {
        (b"4", b"no-parser"),
        (b"5", b"not-understood"),
        (b"7", b"parser-error"),
        (b"10", b"bad-identifier"),
        (b"15", b"refused"),
    }
    assert dead[b"5", b"not-understood"] == (b"d-1", b'{"a": 1, "a": 2}')
    slow = {headers["ce_sequence"]: (value, headers) for _, value, headers in flow.derived(topics.slow(tenant))}
    assert {number: value for number, (value, _) in slow.items()} == {b"6": b"z", b"8": b"r"}
    assert records.event_of(slow[b"6"][1], b"z", tenant).content_type == "application/x-endless", (
        "it can be sent again as it is"
    )
    fleet = [each for record in flow.derived_json(topics.fleet(tenant)) for each in record]
    assert len(fleet) == 13
    assert not any("data" in each or "detail" in each for each in fleet), "no body, nor words out of one"
    assert next(each for each in fleet if each.get("sequence") == 1)["readings"] == 2


@pytest.mark.fault("C6")
def test_a_kill_between_two_steps_of_a_batch_changes_nothing(flow: Flow, make_event: MakeEvent) -> None:
    flow.land([make_event(b"%d" % number) for number in range(5)])
    with crash_at("events"):
        flow.run()
    assert flow.rows("events") == []
    with crash_at("readings"):
        flow.run()
    decided = flow.rows("events")
    assert [row["sequence"] for row in decided] == [1, 2, 3, 4, 5]
    with crash_at("derive"):
        flow.run()
    assert flow.derived(topics.canonical(flow.settings.tenant)) == []
    with crash_at("readings"):
        flow.run()
    assert flow.rows("readings") == []
    flow.run()

    flow.land([make_event(b"5")])
    with crash_at("derive"):
        flow.run()
    assert sequences(flow, "readings") == [1, 2, 3, 4, 5, 6], "they do not wait for Kafka"
    assert "ID-6" not in {each["id"] for each in canonical_readings(flow)}
    flow.run()

    assert flow.rows("events")[:5] == decided, "nothing was parsed again"
    assert sequences(flow, "events") == sequences(flow, "readings") == [1, 2, 3, 4, 5, 6]
    canonical = Counter(each["id"] for each in canonical_readings(flow))
    assert canonical == {**dict.fromkeys(["ID-1", "ID-2", "ID-3", "ID-4", "ID-5"], 2), "ID-6": 1}, "at least once"


@pytest.mark.fault("C6")
def test_a_batch_that_spark_forgot_changes_nothing(flow: Flow, make_event: MakeEvent) -> None:
    flow.land([make_event(b'{"a": 1, "b": 2}'), make_event(b"{")])
    flow.run()
    before = flow.rows("events"), flow.rows("readings")
    for done in (flow.checkpoint / "commits").iterdir():
        done.unlink()

    flow.run()

    assert (flow.rows("events"), flow.rows("readings")) == before
    canonical = Counter((each["id"], each["ordinal"]) for each in canonical_readings(flow))
    assert canonical == {("ID-1", 0): 2, ("ID-1", 1): 2}, "at least once, with the same ids"


def test_a_flow_without_its_checkpoint_continues_after_the_last_rows(flow: Flow, make_event: MakeEvent) -> None:
    flow.land([make_event(b"1"), make_event(b"2")])
    flow.land([make_event(b"3")], partition=1)
    with crash_at("readings"):
        flow.run()
    shutil.rmtree(flow.checkpoint)
    flow.land([make_event(b"4"), make_event(b"5", lane=Lane.ALARM)])

    flow.run()

    assert sequences(flow, "events") == [1, 2, 3, 4, 5]
    assert sequences(flow, "readings") == [1, 2, 3, 4, 5], "what the lost checkpoint left undone is done"
    assert len({row["run"] for row in flow.rows("events")}) == 2


def test_a_checkpoint_older_than_the_tables_is_refused(flow: Flow, make_event: MakeEvent) -> None:
    flow.land([make_event(b"1")])
    flow.run()
    old = flow.checkpoint.with_name("old")
    shutil.copytree(flow.checkpoint, old)
    flow.land([make_event(b"2")])
    flow.run()
    shutil.rmtree(flow.checkpoint)
    old.rename(flow.checkpoint)
    flow.land([make_event(b"3")])

    with pytest.raises(Misconfigured, match="older than the tables"):
        flow.run()
    shutil.rmtree(flow.checkpoint)
    flow.run()

    assert sequences(flow, "events") == sequences(flow, "readings") == [1, 2, 3]


@pytest.mark.fault("C13")
def test_events_that_a_gateway_sends_again_are_kept_once(flow: Flow, make_event: MakeEvent) -> None:
    flow.land([make_event(b"1", id="one"), make_event(b"{", id="two")])
    flow.run()
    again = {"stream": "00000000000000bb", "replayed": True}
    flow.land(
        [
            make_event(b"1", id="one", sequence=1, **again),
            make_event(b"{", id="two", sequence=2, **again),
            make_event(b"3", id="three", sequence=3, **again),
            make_event(b"3", id="three", sequence=4, **again),
            make_event(b"4", id="four", sequence=5, **again),
            make_event(b"4", id="four", sequence=6, stream="00000000000000bb"),
            make_event(b"1", id="one", sequence=7, device="d-2", **again),
        ]
    )

    flow.run()

    outcomes = [(row["id"], row["device"], row["sequence"], row["outcome"]) for row in flow.rows("events")]
    assert outcomes == [
        ("one", "d-1", 1, "ok"),
        ("two", "d-1", 2, "dead"),
        ("one", "d-1", 1, "duplicate"),
        ("two", "d-1", 2, "duplicate"),
        ("three", "d-1", 3, "ok"),
        ("three", "d-1", 4, "duplicate"),
        ("four", "d-1", 5, "duplicate"),
        ("four", "d-1", 6, "ok"),
        ("one", "d-2", 7, "ok"),
    ]
    assert not any((flow.tables / "events" / "_contested").rglob("*.parquet")), "what was contested does not stay"
    assert [(row["id"], row["device"]) for row in flow.rows("readings")] == [
        ("one", "d-1"),
        ("three", "d-1"),
        ("four", "d-1"),
        ("one", "d-2"),
    ]
    for done in (flow.checkpoint / "commits").iterdir():
        done.unlink()
    before = flow.rows("events"), flow.rows("readings")
    flow.run()
    assert (flow.rows("events"), flow.rows("readings")) == before


def test_a_batch_is_replayed_out_of_a_compacted_file(flow: Flow, make_event: MakeEvent) -> None:
    """Maintenance joined its file with those of other batches."""
    for number in range(2):
        flow.land([make_event(b"%d" % number)])
        flow.run()
    for table in ("events", "readings"):
        DeltaTable(str(flow.tables / table)).optimize.compact()
    assert [len(DeltaTable(str(flow.tables / table)).file_uris()) for table in ("events", "readings")] == [1, 1]

    before = flow.rows("events"), flow.rows("readings")
    for done in (flow.checkpoint / "commits").glob("*1*"):
        done.unlink()
    (batch,) = flow.run()
    assert (batch.events, batch.readings) == (1, 1), "one batch's rows out of a compacted file"
    assert (flow.rows("events"), flow.rows("readings")) == before


def test_a_started_flow_lands_a_small_batch_first_and_then_larger_ones(flow: Flow, make_event: MakeEvent, monkeypatch) -> None:
    monkeypatch.setattr(parsed_sink, "FIRST_EVENTS", 40)
    flow.land([make_event(b"1") for _ in range(3)])
    flow.run()
    flow.land([make_event(b"%d" % number) for number in range(2000)])
    stop, landed = threading.Event(), []

    def on_batch() -> None:
        landed.append(len(flow.rows("readings")))
        if landed[-1] >= 2003:
            stop.set()

    batches = flow.run(once=False, stop=stop, on_batch=on_batch)

    sizes = [batch.events for batch in batches]
    assert (sizes[0], landed[0]) == (40, 43), "the first batch is small, and its rows are in the table"
    assert max(sizes) > 900, sizes
    assert len(sizes) <= 8, sizes
    assert sequences(flow, "events") == sequences(flow, "readings") == list(range(1, 2004))


def test_a_flow_is_ready_once_when_the_rows_of_its_first_batch_are_in_the_table(flow: Flow, make_event: MakeEvent) -> None:
    flow.land([make_event(b"1")])
    stop, seen = threading.Event(), []

    def on_ready() -> None:
        seen.append(("ready", sequences(flow, "readings")))

    def on_batch() -> None:
        seen.append(("batch", sequences(flow, "readings")))
        stop.set()

    flow.run(once=False, stop=stop, on_batch=on_batch, on_ready=on_ready)
    assert seen == [("ready", [1]), ("batch", [1])]


def test_a_flow_with_nothing_to_land_is_ready(flow: Flow) -> None:
    stop = threading.Event()
    batches = flow.run(once=False, stop=stop, on_ready=stop.set)
    assert (stop.is_set(), sum(batch.events for batch in batches)) == (True, 0)


def test_a_flow_without_a_backlog_stays_at_its_first_query(flow: Flow, make_event: MakeEvent, monkeypatch) -> None:
    """A query that begins anew asks Kafka for all offsets: new rows would wait for it."""
    queries, stream = [], Query._stream

    def counted(self, *args, **more):
        queries.append(self)
        return stream(self, *args, **more)

    monkeypatch.setattr(Query, "_stream", counted)
    flow.land([make_event(b"0")])
    stop, waiting = threading.Event(), [1, 2, 3]

    def on_batch() -> None:
        if waiting:
            flow.land([make_event(b"%d" % waiting.pop())])
        else:
            stop.set()

    batches = flow.run(once=False, stop=stop, on_batch=on_batch)
    assert sum(batch.events for batch in batches) == 4
    assert len(queries) == 1


def test_a_stopped_flow_ends_after_the_running_batch(flow: Flow, make_event: MakeEvent) -> None:
    flow.land([make_event(b"1")])
    stop = threading.Event()
    batches = flow.run(once=False, stop=stop, on_batch=stop.set)
    assert len(batches) == 1
    assert sequences(flow, "readings") == [1]
