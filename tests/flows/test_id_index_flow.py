"""Copies are found by the index of ids, with a real Kafka and a real Spark."""

import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from deltalake import DeltaTable

from flows.crashes import crash_at
from flows.tenant_flow import Flow
from fogline.events.event import Event
from fogline_cloud.flows.tables.id_keys import IdIndex
from fogline_cloud.maintenance import key_files
from fogline_cloud.maintenance.maintain import maintain
from sampling import a_few

MakeEvent = Callable[..., Event]
CLIENT = {"gateway": "", "stream": "", "adapter": "amqp"}
"""An event of an AMQP client with an id."""


@pytest.fixture
def read_files(monkeypatch) -> list[int]:
    """Return the number of files that each look-up lets Spark read."""
    counts: list[int] = []
    holding = IdIndex.holding

    def counted(self, *given):
        found = holding(self, *given)
        counts.append(len(found))
        return found

    monkeypatch.setattr(IdIndex, "holding", counted)
    return counts


def maintained(flow: Flow) -> None:
    assert maintain(flow.settings, lambda _: None, datetime.now(UTC), dry_run=False)


def outcomes(flow: Flow) -> list[tuple[str, str]]:
    return sorted((row["id"], row["outcome"]) for row in flow.rows("events"))


def test_an_event_is_looked_up_in_the_files_that_may_hold_it(flow: Flow, make_event: MakeEvent, read_files, monkeypatch):
    """F8: with key files, without them, and after the files were joined."""
    monkeypatch.setattr(key_files, "OPEN_BYTES", 0)
    for name in ("one", "two", "three"):
        flow.land([make_event(id=name)])
        flow.run()
    flow.land([make_event(id=name, sequence=9, **CLIENT) for name in ("four", "four")])
    flow.run()
    assert read_files == [0]
    events = flow.tables / "events"

    def written() -> int:
        return len([*(events / "_ids").rglob("*.keys1")])

    again = {"replayed": True, "stream": "00000000000000bb"}
    maintained(flow)
    assert written() == len(DeltaTable(events).file_uris()) == 4
    flow.land([make_event(id="two", **again), make_event(id="five", sequence=9, **CLIENT)])
    flow.run()
    DeltaTable(events).optimize.compact()
    flow.land([make_event(id="four", sequence=9, **CLIENT)])
    flow.run()
    maintained(flow)
    assert written() == len(DeltaTable(events).file_uris()) == 2
    shutil.rmtree(events / "_ids")
    flow.land([make_event(id="one", **again), make_event(id="six", sequence=9, **CLIENT)])
    flow.run()

    once = [("five", "ok"), ("four", "duplicate"), ("four", "duplicate"), ("four", "ok"), ("one", "duplicate"), ("one", "ok")]
    assert outcomes(flow) == [*once, ("six", "ok"), ("three", "ok"), ("two", "duplicate"), ("two", "ok")]
    assert read_files == [0, 1, 1, 1]


@pytest.mark.fault("C6", "C13")
@pytest.mark.parametrize("step", a_few(["events", "derive", "readings"], "events"))
def test_a_kill_while_copies_land_changes_nothing(flow: Flow, make_event: MakeEvent, step: str):
    flow.land([make_event(id="one", sequence=9, **CLIENT)])
    flow.run()
    flow.land([make_event(id=name, sequence=9, **CLIENT) for name in ("one", "two", "two")])
    with crash_at(step):
        flow.run()
    flow.land([make_event(id="two", sequence=9, **CLIENT)])

    flow.run()

    assert outcomes(flow) == [("one", "duplicate"), ("one", "ok"), *[("two", "duplicate")] * 2, ("two", "ok")]
    assert sorted(row["id"] for row in flow.rows("readings")) == ["one", "two"]
    assert not any(Path(flow.tables / "events" / "_contested").rglob("*.parquet"))
