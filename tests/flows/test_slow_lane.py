"""Slow events are tried again, with a larger limit, at certain ages."""

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from flows.tenant_flow import Flow
from fogline.events.event import Event
from fogline_cloud.flows.replay.slow_lane import AGES, SlowLane, due

NOW = datetime(2026, 11, 8, 12, 0, tzinfo=UTC)


def test_each_event_is_due_once_at_each_age() -> None:
    ingested = datetime(2026, 11, 7, 3, 4, 5, 678, tzinfo=UTC)
    tries = []
    for minute in range(2 * 24 * 60):
        since = ingested + timedelta(minutes=minute, seconds=7)
        until = since + timedelta(minutes=1)
        tries += [until - ingested for begin, end in due(since, until) if begin <= ingested < end]
    assert [timedelta(0) < late - age <= timedelta(minutes=1) for late, age in zip(tries, AGES, strict=True)] == [True] * 5


@pytest.mark.fault("D7")
def test_an_event_that_needs_more_time_lands_late_and_once(flow: Flow, make_event: Callable[..., Event]) -> None:
    flow.settings = msgspec.structs.replace(flow.settings, flow=msgspec.structs.replace(flow.settings.flow, slow_limit_ms=2000))
    slow = [make_event(b"0.8", content_type="application/x-tardy"), make_event(b"z", content_type="application/x-endless")]
    flow.hurry()
    flow.land([*slow, make_event(b'{"t": 1}')])
    flow.run()
    assert [row["outcome"] for row in flow.rows("events")] == ["slow", "slow", "ok"]
    begin = flow.rows("events")[0]["ingested"]
    stop, clock = threading.Event(), iter(range(10_000))
    lane = SlowLane(flow.spark, flow.settings, interval_s=0.01)
    landed = []
    look = lane.look

    def looked(since: datetime, until: datetime) -> int:
        landed.append(look(since, until))
        if until > begin + AGES[1]:
            stop.set()
        return landed[-1]

    lane.look = looked  # type: ignore[method-assign]
    lane.run(stop, lambda: begin + timedelta(seconds=50) + timedelta(minutes=5 * next(clock)))

    assert landed == [1, 0]
    assert [row["outcome"] for row in flow.rows("events")] == ["ok", "slow", "ok"]
    assert [(row["sequence"], row["metric"], row["value"]) for row in flow.rows("readings")] == [
        (1, "took", 0.8),
        (3, "t", 1.0),
    ]
