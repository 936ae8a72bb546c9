"""Stored events are parsed again with real tables; each of them lands once, whatever is killed meanwhile."""

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import Row, SparkSession

from flows.crashes import crash_at
from flows.replays import DEAD, past, redrive, values, with_flow
from flows.tenant_flow import Flow, canonical_readings
from fogline.errors import Misconfigured
from fogline.events.event import Event
from fogline_cloud.cli.main import main
from fogline_cloud.flows.driver import session
from fogline_cloud.flows.driver.plan import plan_of
from fogline_cloud.flows.replay.difference import Difference
from fogline_cloud.flows.replay.selection import Selection
from fogline_cloud.flows.replay.table_replay import TableReplay
from fogline_cloud.flows.tables.delta_log import DeltaLog

MakeEvent = Callable[..., Event]
WRONG = "application/x-wrong"
WAS_MISREAD = [Difference("json", "telemetry", "air", "went", 1), Difference("json", "telemetry", "value", "came", 1)]


@pytest.fixture
def mended(flow: Flow, make_event: MakeEvent) -> Flow:
    """A flow whose parser for `WRONG` was mended after two of its events were dead. Others are dead and slow for good."""
    flow.land([make_event(b'{"t": 1}'), make_event(b'{"t": 2, "on": true}', content_type=WRONG)])
    flow.run()
    flow.land([make_event(b'{"t": 3}', content_type=WRONG, device="d-2"), make_event(b'{"a": 1, "a": 2}'), make_event(b"{}")])
    flow.land([make_event(b"z", content_type="application/x-endless")])
    flow.hurry()
    flow.run()
    assert [row["outcome"] for row in flow.rows("events")] == ["ok", "dead", "dead", "dead", "ok", "slow"]
    flow.settings = with_flow(flow, parsers={**flow.settings.flow.parsers, WRONG: "json"})
    return flow


def added_since(flow: Flow, version: int) -> list[tuple[int, str]]:
    """What a streaming reader of `readings` sees that skips commits which replace rows."""
    found = list[Row]()
    query = (
        flow.spark.readStream.format("delta")
        .options(skipChangeCommits="true", startingVersion=version + 1)
        .load(str(flow.tables / "readings"))
        .writeStream.foreachBatch(lambda batch, _: found.extend(batch.collect()))
        .trigger(availableNow=True)
        .option("checkpointLocation", str(flow.tables.parent / "stream"))
        .start()
    )
    assert query.awaitTermination(60), "the stream does not end"
    return sorted((row["sequence"], row["metric"]) for row in found)


def check_mended(flow: Flow, before: list[dict[str, Any]]) -> None:
    """The two events are as if their parser had always been right; all other rows are the same."""
    rows = flow.rows("events")
    assert [row["outcome"] for row in rows] == ["ok", "ok", "ok", "dead", "ok", "slow"]
    assert [row for row in rows if row["sequence"] not in {2, 3}] == [row for row in before if row["sequence"] not in {2, 3}]
    position = (
        "topic",
        "partition",
        "offset",
        "ingested",
        "gateway",
        "stream",
        "sequence",
        "run",
        "batch",
        "day",
        "source",
        "id",
    )
    for old, new in zip(before, rows, strict=True):
        assert [old[name] for name in position] == [new[name] for name in position]
    assert [(rows[n]["parser"], rows[n]["reason"], rows[n]["detail"], rows[n]["data"]) for n in (1, 2)] == [
        ("json", None, None, None)
    ] * 2
    assert values(flow) == [(1, "t", 1.0), (2, "t", 2.0), (2, "on", 1.0), (3, "t", 3.0)]
    assert {each["device"] for each in flow.rows("readings") if each["sequence"] == 3} == {"d-2"}


@pytest.mark.fault("D7")
def test_dead_events_that_a_mended_parser_reads_land_once(mended: Flow, make_event: MakeEvent) -> None:
    before = mended.rows("events")
    assert redrive(mended, dry_run=True).outcomes == {"dead -> ok": 2}
    assert mended.rows("events") == before

    stream = DeltaTable(str(mended.tables / "readings")).version()

    result = redrive(mended)

    assert added_since(mended, stream) == [(2, "on"), (2, "t"), (3, "t")], "streaming readers see them"
    assert (result.selected, result.changed, result.outcomes) == (4, 2, {"dead -> ok": 2})
    assert result.differences == [
        Difference("json", "telemetry", "on", "came", 1),
        Difference("json", "telemetry", "t", "came", 2),
    ]
    check_mended(mended, before)
    assert {(each["id"], each["metric"]) for each in canonical_readings(mended)} >= {
        ("ID-2", "t"),
        ("ID-2", "on"),
        ("ID-3", "t"),
    }
    assert redrive(mended).changed == 0, "again changes nothing"
    mended.land([make_event(b'{"t": 4}')])
    mended.run()
    assert values(mended)[-1] == (7, "t", 4.0), "the flow goes on"
    assert not [each for each in (mended.tables / "events" / "_replay").rglob("*") if each.is_file()]


def _die_at(table: str) -> Callable[..., None]:
    """A replay that is killed before it replaces the rows of a table."""
    commit = TableReplay._commit

    def die(work: TableReplay, log: DeltaLog, *given: Any) -> None:
        if log.table == table:
            raise ConnectionResetError("killed")
        commit(work, log, *given)

    return die


@pytest.mark.slow
@pytest.mark.fault("C6")
@pytest.mark.parametrize("at", ["readings", "events"])
def test_a_redrive_that_is_killed_and_repeated_lands_each_event_once(mended: Flow, at: str) -> None:
    before = mended.rows("events")
    with mock.patch.object(TableReplay, "_commit", _die_at(at)), pytest.raises(ConnectionResetError):
        redrive(mended)
    redrive(mended)
    check_mended(mended, before)


@pytest.mark.slow
def test_rows_that_compaction_has_moved_beside_others_are_replaced_alone(mended: Flow) -> None:
    before = mended.rows("events")
    for table in ("events", "readings"):
        DeltaTable(str(mended.tables / table)).optimize.compact()
    assert redrive(mended, msgspec.structs.replace(DEAD, device="d-2")).changed == 1
    assert redrive(mended, msgspec.structs.replace(DEAD, reason="parser-error")).changed == 1
    check_mended(mended, before)


@pytest.mark.slow
@pytest.mark.fault("C6")
def test_a_batch_that_the_flow_has_not_finished_waits(flow: Flow, make_event: MakeEvent) -> None:
    flow.land([make_event(b'{"t": 1}', content_type=WRONG), make_event(b'{"t": 2}')])
    with crash_at("readings"):
        flow.run()
    flow.settings = with_flow(flow, parsers={**flow.settings.flow.parsers, WRONG: "json"})
    assert redrive(flow).selected == 0
    flow.run()
    assert values(flow) == [(2, "t", 2.0)]
    assert redrive(flow).changed == 1
    assert values(flow) == [(1, "t", 1.0), (2, "t", 2.0)]


@pytest.mark.slow
def test_rows_that_another_command_deletes_meanwhile_do_not_come_back(mended: Flow) -> None:
    work = TableReplay(mended.spark, mended.settings, plan_of(mended.settings), print)
    DeltaTable(str(mended.tables / "events")).delete("device = 'd-2'")
    with pytest.raises(Misconfigured, match=r"events: another command .* meanwhile \(DELETE\): run it again"):
        work.run(DEAD, publish=False)
    assert "d-2" not in {row["device"] for row in mended.rows("events")}


def changed_since(flow: Flow, version: int) -> dict[tuple[int, str], int]:
    """Return how many readings came or went after a version, by sequence and metric, as the change data feed says."""
    found = pa.table(DeltaTable(str(flow.tables / "readings")).load_cdf(starting_version=version + 1).read_all()).to_pylist()
    net: Counter[tuple[int, str]] = Counter()
    for row in found:
        net[row["sequence"], row["metric"]] += 1 if row["_change_type"] == "insert" else -1
    return {each: count for each, count in net.items() if count}


@pytest.fixture
def misread(flow: Flow, make_event: MakeEvent) -> Flow:
    """A flow with table `raw`, and a parser that was chosen wrongly but did not fail."""
    flow.settings = with_flow(flow, raw_days=90)
    flow.land([make_event(b"17", content_type="text/plain"), make_event(b'{"t": 2}'), make_event(b"x", properties="a=b")])
    flow.run()
    flow.land([make_event(b"17", content_type="text/plain", sequence=7, id="ID-1", replayed=True)])
    flow.run()
    assert [row["outcome"] for row in flow.rows("events")] == ["ok", "ok", "dead", "duplicate"]
    assert [row["metric"] for row in flow.rows("readings")] == ["air", "t"]
    flow.settings = with_flow(flow, parsers={**flow.settings.flow.parsers, "text/plain": "json"})
    return flow


@pytest.mark.slow
@pytest.mark.fault("D7")
def test_events_of_a_parser_that_was_wrong_are_parsed_again_from_table_raw(misread: Flow) -> None:
    before, sent = misread.rows("events"), len(canonical_readings(misread))
    version = DeltaTable(str(misread.tables / "readings")).version()
    result = redrive(misread, msgspec.structs.replace(past(before), parser="raw-number"), publish=False)
    assert changed_since(misread, version) == {(1, "air"): -1, (1, "value"): 1}, "the change data feed shows the replay"
    assert result.outcomes == {"ok -> ok": 1}
    assert result.differences == WAS_MISREAD
    rows = misread.rows("events")
    assert [row["parser"] for row in rows] == ["json", "json", "json", "raw-number"]
    assert rows[1:] == before[1:]
    assert values(misread) == [(1, "value", 17.0), (2, "t", 2.0)]
    assert len(canonical_readings(misread)) == sent


@pytest.mark.slow
def test_new_rows_can_be_written_beside_the_tables_first(misread: Flow) -> None:
    before, into = misread.rows("events"), misread.tables.parent / "beside"
    assert redrive(misread, past(before), publish=False, into=str(into)).differences == WAS_MISREAD
    assert misread.rows("events") == before
    beside = DeltaTable(str(into / "readings")).to_pyarrow_table().to_pylist()
    assert sorted(row["metric"] for row in beside) == ["t", "value"], "whole micro-batches"
    assert redrive(misread, msgspec.structs.replace(past(before), parser="cbor"), publish=False).changed == 0
    assert redrive(misread, past(before), publish=False).changed == 1
    assert redrive(misread, past(before), publish=False).changed == 0


def test_replay_without_table_raw_names_the_missing_table(mended: Flow) -> None:
    with pytest.raises(Misconfigured, match=r"there is no table .*raw, .* raw_days"):
        redrive(mended, Selection())


@pytest.fixture
def command(flow: Flow, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Run `fogline` with this flow's settings, and the Spark session that runs already."""
    config = folder / "cloud.toml"

    @contextlib.contextmanager
    def same(*_: object) -> Iterator[SparkSession]:
        yield flow.spark

    def run(*arguments: str) -> int:
        parsers = "\n".join(f'"{kind}" = "{name}"' for kind, name in flow.settings.flow.parsers.items())
        config.write_text(
            f'tenant = "{flow.settings.tenant}"\nshards = {flow.settings.shards}\n'
            f'[kafka]\n"bootstrap.servers" = "{flow.settings.kafka["bootstrap.servers"]}"\n'
            f'[flow]\ntables = "{flow.tables}"\ncheckpoint = "{flow.checkpoint}"\nparse_limit_ms = 300\n'
            f"[flow.parsers]\n{parsers}\n"
        )
        return main([*arguments, "--config", str(config)])

    monkeypatch.setattr(session, "spark_session", same)
    return run


def test_the_command_counts_shows_and_redrives(
    mended: Flow, command: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    def printed(*arguments: str) -> str:
        assert command(*arguments) == 0
        return capsys.readouterr().out

    counts = json.loads(printed("dead", "list", "--json"))
    assert [(each["events"], each["outcome"], each["reason"], each["parser"]) for each in counts] == [
        (2, "dead", "parser-error", "test-wrong"),
        (1, "dead", "not-understood", "json"),
        (1, "slow", "timeout", "test-endless"),
    ]
    assert "parser-error" in printed("dead", "list", "--since", "1h")
    shown = printed("dead", "show", "--reason", "parser-error", "--limit", "1")
    assert "d-2 air (application/x-wrong, 8 bytes)" in shown
    assert "LookupError: the table of this device is empty" in shown
    assert '{"t": 3}' in shown
    (line,) = printed("dead", "show", "--device", "d-2", "--json").splitlines()
    assert json.loads(line)["data"] == "eyJ0IjogM30="
    assert "2  dead -> ok" in printed("dead", "redrive", "--parser", "test-wrong", "--outcome", "dead", "--dry-run")
    assert json.loads(printed("dead", "redrive", "--json"))["outcomes"] == {"dead -> ok": 2}
    assert command("dead", "list", "--since", "soon") == 2
    assert "--since 'soon': expected a time like 7d" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.fault("K7")
def test_records_that_kafka_forgot_before_the_flow_read_them_come_from_table_raw(flow: Flow, make_event: MakeEvent) -> None:
    """Events lack records that table `raw` has. A first replay is killed between its commits."""
    flow.settings = with_flow(flow, raw_days=90)
    flow.land([make_event(b'{"t": 1}'), make_event(b'{"t": 2}'), make_event(b'{"t": 3}')])
    flow.land([make_event(b'{"t": 2}', sequence=7, id="ID-2", replayed=True), make_event(b'{"t": 8}', sequence=8)])
    flow.run()
    every = flow.rows("events")
    for table in ("events", "readings"):
        DeltaTable(str(flow.tables / table)).delete("sequence IN (2, 3, 7)")
    assert [row["sequence"] for row in flow.rows("readings")] == [1, 8]
    days = past(every)

    with mock.patch.object(TableReplay, "_commit", _die_at("events")), pytest.raises(ConnectionResetError):
        redrive(flow, days, publish=True)
    assert redrive(flow, days, publish=True).outcomes == {"missing -> duplicate": 1, "missing -> ok": 2}

    rows = flow.rows("events")
    assert [(row["sequence"], row["outcome"]) for row in rows] == [
        (n, "duplicate" if n == 7 else "ok") for n in (1, 2, 3, 7, 8)
    ]
    other = {"run", "batch", "parse_us"}
    for old, new in zip(every, rows, strict=True):
        assert {**old, **dict.fromkeys(other)} == {**new, **dict.fromkeys(other)}
    assert values(flow) == [(1, "t", 1.0), (2, "t", 2.0), (3, "t", 3.0), (8, "t", 8.0)]
    flow.settings = with_flow(flow, parsers={**flow.settings.flow.parsers, "application/json": "raw-number"})
    assert redrive(flow, days, publish=False).outcomes == {"ok -> skip": 4}, "they can be replayed like others"
    assert values(flow) == []
