"""Two flows of one name on the same tables, and tables that were set back, with a real Kafka and a real Spark."""

import json
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from deltalake import DeltaTable

from flows.other_flows import other_flow
from flows.tenant_flow import Flow
from fogline.errors import Misconfigured, Unreachable
from fogline_cloud.flows.driver.query import Query

LIMIT_S = 120.0


def sequences(flow: Flow) -> tuple[list[int], list[int]]:
    events, readings = ([row["sequence"] for row in flow.rows(table)] for table in ("events", "readings"))
    return events, readings


@pytest.mark.fault("K7")
def test_the_newest_of_two_flows_of_one_name_continues_and_the_former_stops(flow: Flow, make_event):
    """F1: both run at the same time; then the former is started again with its old checkpoint."""
    other = other_flow(flow)
    flow.land([make_event(b"1"), make_event(b"2")])
    landed, stop = threading.Event(), threading.Event()
    with ThreadPoolExecutor(1) as pool:
        former = pool.submit(flow.run, once=False, stop=stop, on_batch=landed.set)
        try:
            assert landed.wait(LIMIT_S), "the first flow lands nothing"
            assert sum(each.events for each in other.run()) == 0, "nothing is left for a second flow"
            flow.land([make_event(b"3")])
            with pytest.raises(Misconfigured, match=r"another flow of this name or lane has taken over the table .*: stop one"):
                former.result(LIMIT_S)
        finally:
            stop.set()
    assert sequences(flow) == ([1, 2], [1, 2])
    other.run()
    flow.land([make_event(b"4")])

    with pytest.raises(Misconfigured, match=r"\[flow\] checkpoint = .*: another flow with \[flow\] name = main"):
        flow.run()
    other.run()

    assert sequences(flow) == ([1, 2, 3, 4], [1, 2, 3, 4])


@pytest.mark.fault("K7")
def test_a_checkpoint_is_not_used_for_other_tables_or_another_name(flow: Flow, make_event):
    flow.land([make_event(b"1")])
    flow.run()
    renamed = msgspec.structs.replace(flow.settings.flow, name="renamed")
    elsewhere = msgspec.structs.replace(flow.settings.flow, tables=f"{flow.tables}-2")
    for settings in (renamed, elsewhere):
        changed = type(flow)(flow.spark, msgspec.structs.replace(flow.settings, flow=settings))
        with pytest.raises(Misconfigured, match=r"it has finished batch 0, but the tables in .* hold none of its batches"):
            changed.run()
    assert sequences(flow) == ([1], [1])


def restore_by_spark(flow: Flow, place: Path, version: int) -> None:
    flow.spark.sql(f"RESTORE TABLE delta.`{place}` TO VERSION AS OF {version}")


def restore_by_delta_rs(_flow: Flow, place: Path, version: int) -> None:
    DeltaTable(place).restore(version)


@pytest.mark.fault("K7")
@pytest.mark.parametrize("restore", [restore_by_delta_rs, pytest.param(restore_by_spark, marks=pytest.mark.slow)])
def test_restored_tables_are_refused_until_the_checkpoint_is_deleted(flow: Flow, make_event, restore):
    for body in (b"1", b"2"):
        flow.land([make_event(body)])
        flow.run()
    for table in ("events", "readings"):
        place = flow.tables / table
        first = next(commit["version"] for commit in reversed(DeltaTable(place).history()) if commit["operation"] == "WRITE")
        restore(flow, place, first + 1)
        with pytest.raises(Misconfigured, match="was restored to an earlier version"):
            flow.run()
    assert sequences(flow) == ([1], [1])
    shutil.rmtree(flow.checkpoint)

    flow.run()

    assert sequences(flow) == ([1, 2], [1, 2])


@pytest.mark.fault("K7")
def test_tables_from_an_older_copy_are_refused_until_the_checkpoint_is_deleted(flow: Flow, make_event):
    flow.land([make_event(b"1")])
    flow.run()
    copy = shutil.copytree(flow.tables, f"{flow.tables}-copy")
    flow.land([make_event(b"2")])
    flow.run()
    shutil.rmtree(flow.tables)
    shutil.move(copy, flow.tables)

    with pytest.raises(Misconfigured, match=r"has finished batch 1, but the tables .* hold batch 0 of it"):
        flow.run()
    shutil.rmtree(flow.checkpoint)
    flow.run()

    assert sequences(flow) == ([1, 2], [1, 2])


def overwrite_last(flow: Flow, table: str) -> None:
    """Overwrite the newest commit as a program does that looks whether its entry exists, and then puts it."""
    entry = max((flow.tables / table / "_delta_log").glob("*.json"))
    entry.write_text(f"{json.dumps({'commitInfo': {'operation': 'OPTIMIZE'}})}\n")


@pytest.mark.fault("K12")
@pytest.mark.parametrize("table", ["events", "readings"])
def test_a_flow_that_was_started_again_repeats_its_last_commit_if_it_was_overwritten(flow: Flow, make_event, table):
    flow.land([make_event(b"1")])
    flow.run()
    flow.land([make_event(b"2")])
    flow.run()
    overwrite_last(flow, table)
    flow.land([make_event(b"3")])

    flow.run()

    assert sequences(flow) == ([1, 2, 3], [1, 2, 3])


@pytest.mark.fault("K12")
def test_a_query_that_follows_a_loss_of_kafka_repeats_an_overwritten_commit(flow: Flow, make_event, monkeypatch):
    """The process goes on, and remembers its commit."""
    flow.land([make_event(b"1")])
    run, lost = Query.run, []

    def lose_kafka(self: Query, *given: object, **named: object) -> None:
        run(self, *given, **named)  # type: ignore[arg-type]
        if not lost:
            lost.append(self)
            overwrite_last(flow, "events")
            overwrite_last(flow, "readings")
            flow.land([make_event(b"2")])
            raise Unreachable("Kafka is away")

    monkeypatch.setattr(Query, "run", lose_kafka)
    flow.run()

    assert sequences(flow) == ([1, 2], [1, 2])
