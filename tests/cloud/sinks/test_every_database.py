"""What holds for PostgreSQL, DuckDB and SQLite alike: the database has the rows of a version of the table, once."""

import json
import threading
from contextlib import suppress
from datetime import date, timedelta

import pytest

from fogline.errors import Misconfigured
from fogline_cloud.flows.tables.readers import readers_of
from fogline_cloud.sinks.database import Database
from fogline_cloud.sinks.place import Kind
from fogline_cloud.sinks.sink import Sink, run_sink
from fogline_cloud.sinks.source import Source
from fogline_lab.flow_table import DAY

TUESDAY = DAY + timedelta(days=1)


def assert_equal(world, table):
    assert world.rows() == table.rows(world.columns)


def test_rows_are_in_the_database_once_when_versions_come_one_by_one_and_together(world):
    table = world.made()
    table.append(3)
    sink = world.sink(table)
    world.fill(table, sink=sink)
    assert_equal(world, table)

    for _ in range(3):
        table.append(2)
    (together,) = world.fill(table, sink=sink)
    assert (together.first, together.last, together.inserted, together.behind) == (3, 5, 6, 0)
    assert world.fill(table, sink=sink) == []
    assert world.fill(table) == [], "a new process goes on after the last one"
    assert_equal(world, table)


def test_a_transaction_takes_versions_up_to_its_bound_of_rows(world):
    table = world.made()
    sink = world.sink(table, transaction_rows=5)
    world.fill(table, sink=sink)
    for count in (2, 3, 1, 9, 1):
        table.append(count)

    assert [each.inserted for each in world.fill(table, sink=sink)] == [5, 1, 9, 1]
    assert_equal(world, table)


def test_a_replay_replaces_rows(world):
    table = world.made()
    table.append(4)
    table.append(4, TUESDAY)
    sink = world.sink(table)
    world.fill(table, sink=sink)
    table.replace_day(lambda number: {"value": number + 0.25, "metric": "humidity"} | ({"ordinal": 1} if number == 2 else {}))
    table.append(1)

    replay, append = world.fill(table, sink=sink)
    assert (replay.inserted, replay.deleted) == (4, 4)
    assert append.inserted == 1
    assert_equal(world, table)
    assert sum(metric == "humidity" for (metric,) in world.rows(("metric",))) == 4


def test_deletions_of_a_device_and_of_a_day_show(world):
    table = world.made()
    table.append(10)
    table.append(10, TUESDAY)
    sink = world.sink(table)
    world.fill(table, sink=sink)

    table.delete(f"day = '{DAY}' AND source = '/t/devices/d-1'")
    (forgotten,) = world.fill(table, sink=sink)
    assert (forgotten.inserted, forgotten.deleted) == (0, 2)
    assert_equal(world, table)

    table.delete(f"day < '{TUESDAY}'")
    (expired,) = world.fill(table, sink=sink)
    assert (expired.inserted, expired.deleted) == (0, 8)
    assert_equal(world, table)
    assert len(world.rows()) == 10


def test_a_deletion_shows_without_a_change_data_feed_too(world):
    table = world.made(changes=False)
    table.append(10)
    sink = world.sink(table)
    world.fill(table, sink=sink)
    table.delete("sequence = 3")
    world.fill(table, sink=sink)
    assert_equal(world, table)


def test_an_event_that_two_gateways_delivered_keeps_its_other_row(world):
    """With the strategy `none` or `mark`, (source, id, ordinal) stands for two rows."""
    table = world.made()
    table.append(2, row=lambda number: {"id": "x", "source": "/t/devices/d", "stream": f"{number:016x}"})
    sink = world.sink(table)
    world.fill(table, sink=sink)
    table.delete("sequence = 0")
    world.fill(table, sink=sink)
    assert world.rows(("sequence",)) == [(1,)]


def test_rows_of_clients_without_a_stream_are_replaced(world):
    table = world.made()
    table.append(3, row=lambda _: {"stream": None, "gateway": None})
    sink = world.sink(table)
    world.fill(table, sink=sink)
    table.replace_day(lambda _: {"stream": None, "gateway": None, "value": 7.0})
    world.fill(table, sink=sink)
    assert world.rows(("value",)) == [(7.0,)] * 3


def test_compaction_and_vacuum_change_nothing(world):
    table = world.made()
    sink = world.sink(table)
    world.fill(table, sink=sink)
    for _ in range(4):
        table.append(2)
    world.fill(table, sink=sink)
    table.compact()
    table.vacuum()

    (moved,) = world.fill(table, sink=sink)
    assert (moved.inserted, moved.deleted) == (0, 0)
    assert_equal(world, table)


def test_columns_of_users_are_left_alone(world):
    table = world.made()
    table.append(2)
    world.fill(table)
    world.sql("ALTER TABLE readings ADD COLUMN room varchar(20)")
    table.add_column("site")
    table.append(2)
    world.fill(table)
    assert_equal(world, table)
    assert world.rows(("room",)) == [(None,)] * 4


def test_a_table_that_a_user_made_may_have_its_columns_in_another_order(world):
    table = world.made()
    world.sql(
        "CREATE TABLE history (note varchar(9), value double precision, sequence bigint, stream varchar(16), ordinal integer, "
        f"id varchar(99), source varchar(99), ingested {'text' if world.kind is Kind.SQLITE else 'timestamptz'})"
    )
    table.append(3)
    world.fill(table, table="history", columns=["value"])
    table.delete("sequence = 1")
    world.fill(table, table="history", columns=["value"])
    assert world.rows(("sequence", "value", "note"), "history") == [(0, 0.0, None), (2, 1.0, None)]


@pytest.mark.parametrize("method", ["insert", "set_position"])
def test_what_was_interrupted_is_done_once(world, interrupted, method):
    table = world.made()
    table.append(3)
    world.fill(table)
    table.replace_day(lambda _: {"value": 1.5})
    with interrupted(method, 1), suppress(KeyboardInterrupt):
        world.fill(table)
    assert all(value != 1.5 for (value,) in world.rows(("value",)))
    world.fill(table)
    assert_equal(world, table)


def test_a_stop_ends_after_the_running_transaction(world):
    table = world.made()
    for _ in range(3):
        table.append(2)
    stop = threading.Event()
    done = []

    def on_progress(progress):
        done.append(progress)
        stop.set()

    assert not world.sink(table, transaction_rows=2).catch_up(stop, on_progress)
    assert len(done) == 1
    assert len(world.rows()) == 2
    world.fill(table)
    assert_equal(world, table)


def test_two_processes_of_one_sink_write_nothing_twice(world):
    table = world.made()
    table.append(2)
    first, second = world.sink(table), world.sink(table)
    world.fill(table, sink=first)
    world.fill(table, sink=second)
    for number in range(6):
        table.append(2)
        world.fill(table, sink=(first, second)[number % 2])
    assert_equal(world, table)


def test_a_process_that_was_overtaken_goes_on_after_the_other(world):
    if world.kind is Kind.DUCKDB:
        return  # it lets no second process open the file
    table = world.made()
    world.fill(table)
    for _ in range(3):
        table.append(2)
    first, second, done = world.sink(table, transaction_rows=2), world.sink(table), []

    def on_progress(progress):
        done.append(progress)
        if len(done) == 1:
            world.fill(table, sink=second)
            table.append(1)

    assert first.catch_up(threading.Event(), on_progress)
    assert [each.inserted for each in done] == [2, 1]
    assert_equal(world, table)


class Waits(threading.Event):
    """A stop that comes after some waits. It counts them."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def wait(self, _timeout=None):
        self.count += 1
        if self.count == 3:
            self.set()
        return super().wait(0)


@pytest.mark.parametrize("reason", ["overtaken", "unreadable"])
def test_a_sink_that_can_write_nothing_waits_before_it_tries_again(world, monkeypatch, reason):
    """Another process writes under its name each time; or the table's next entry is there, and empty."""
    table, passes = world.made(), []
    table.append(1)
    sink, stop = world.sink(table), Waits()
    world.fill(table, sink=sink)
    if reason == "overtaken":
        table.append(1)
    else:
        monkeypatch.setattr(Source, "entry", lambda self, version, entry=Source.entry: entry(self, min(version, table.version)))

    prepare = Sink._prepare

    def counted(self, database):
        passes.append(database)
        if len(passes) > 20:
            stop.set()
        return prepare(self, database)

    monkeypatch.setattr(Sink, "_prepare", counted)
    monkeypatch.setattr(Database, "lock_position", lambda *_: None)
    quiet = {"on_progress": lambda _: None, "on_current": lambda: None, "on_failure": lambda _: None}
    run_sink(sink, stop, **quiet)

    assert len(passes) == stop.count == 3


def test_rows_of_others_are_not_deleted(world):
    table = world.made()
    table.append(1)
    world.sql("CREATE TABLE theirs AS SELECT 1 AS x")
    with pytest.raises(Misconfigured, match="theirs has no column"):
        world.fill(table, table="theirs")
    world.fill(table, table="ours")
    with pytest.raises(Misconfigured, match="table ours has rows that sink other has not written: empty it, or name another"):
        world.fill(table, sink=world.sink(table, "other", table="ours"))
    assert len(world.rows(table="ours")) == 1


def test_a_missing_column_is_one_sentence(world):
    table = world.made()
    table.append(1)
    world.fill(table, columns=["value"])
    with pytest.raises(Misconfigured, match=r"table readings has no column device: add it \(docs/sinks.md has the types\)"):
        world.fill(table, columns=["value", "device"])
    with pytest.raises(Misconfigured, match="columns: table readings has no column temperature"):
        world.fill(table, columns=["temperature"])


def test_events_have_their_nested_columns_as_json(world):
    events = world.made("events")
    readings = [{"ordinal": 0, "metric": "t", "value": 21.5, "text": None, "unit": "Cel", "time": None}]
    events.append(2, row=lambda number: {"readings": readings if number else None, "properties": [("firmware", "1.2")]})
    world.fill(events)
    found = world.rows(("offset", "readings", "properties"), "events")
    assert found[0][:2] == (0, None)
    assert json.loads(found[1][1]) == readings
    assert json.loads(found[1][2]) == {"firmware": "1.2"}

    events.update("device = 'd-1'", device="NULL", source="NULL", readings="NULL", outcome="'forgotten'")
    (forgotten,) = world.fill(events)
    assert (forgotten.inserted, forgotten.deleted) == (1, 1)
    assert world.rows(("device", "outcome"), "events") == [("d-0", "ok"), (None, "forgotten")]


def test_raw_records_have_their_headers_as_json(world):
    raw = world.made("raw", changes=False)
    raw.append(1, row=lambda _: {"headers": [{"key": "device_id", "value": b"d"}, {"key": "x", "value": b"\xff"}]})
    world.fill(raw)
    ((value, headers),) = world.rows(("value", "headers"), "raw")
    assert bytes(value) == b"0"
    assert json.loads(headers) == [{"key": "device_id", "value": "d"}, {"key": "x", "value": {"base64": "/w=="}}]


def test_odd_texts_and_numbers_arrive_and_are_replaced(world):
    odd = {"id": "a\0b", "metric": "\U0001f321 'quoted\" \\ \n", "value": float("inf"), "text": "", "unit": None}
    table = world.made()
    table.append(1, row=lambda _: odd)
    world.fill(table)
    nul = "\ufffd" if world.kind is Kind.POSTGRESQL else "\0"
    (row,) = world.rows(("id", "metric", "value", "text", "unit"))
    assert row == (f"a{nul}b", odd["metric"], float("inf"), "", None)
    table.replace_day(lambda _: {**odd, "value": 1.0})
    world.fill(table)
    assert world.rows(("value",)) == [(1.0,)]


def test_times_are_utc_with_microseconds(world):
    table = world.made()
    table.append(1)
    world.fill(table)
    function = "strftime('%Y-%m-%d %H:%M:%f', ingested)" if world.kind is Kind.SQLITE else "ingested"
    ((ingested, day),) = world.sql(f"SELECT {function}, day FROM readings")
    if world.kind is Kind.SQLITE:
        assert (ingested, day) == ("2026-01-05 00:00:00.000", "2026-01-05")
    else:
        assert (ingested.isoformat(), day) == ("2026-01-05T00:00:00+00:00", date(2026, 1, 5))


def test_maintenance_knows_what_the_sink_has_read(world):
    table = world.made()
    table.append(1)
    world.fill(table)
    (reader,) = readers_of(table.folder)
    assert (reader.name, reader.version) == ("sink-lab", table.version)
