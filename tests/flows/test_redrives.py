"""Orders to parse events again: the running flow carries each of them out, and says what came of it."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from flows.replays import with_flow
from flows.tenant_flow import Flow
from fogline.events.event import Event
from fogline_cloud.flows.orders.redrive_orders import RedriveEnd, RedriveOrder, RedriveOrders
from fogline_cloud.flows.replay.redrives import TOO_OLD_S, RedriveQueue
from fogline_cloud.settings import CloudSettings, FlowSettings

WRONG = "application/x-wrong"


def order(**more: Any) -> RedriveOrder:
    return RedriveOrder(**{"at_ms": time.time_ns() // 1_000_000, "who": "alice", "outcomes": ["dead"], **more})


@pytest.fixture
def settings(tmp_path: Path) -> CloudSettings:
    return CloudSettings(tenant="t", flow=FlowSettings(tables=str(tmp_path / "tables")))


def test_orders_are_numbered_and_wait_until_their_end_is_said(settings: CloudSettings) -> None:
    orders = RedriveOrders(settings)
    assert (orders.newest(5), orders.waiting(), orders.last(), orders.has(1)) == ([], [], 0, False)
    with ThreadPoolExecutor(4) as pool:
        put = [*pool.map(lambda number: RedriveOrders(settings).put(order(who=f"u{number}")), range(8))]
    assert sorted(each.number for each in put) == [1, 2, 3, 4, 5, 6, 7, 8]
    done = RedriveEnd(at_ms=1, selected=2, changed=1, outcomes={"dead -> ok": 1})
    orders.end(2, done)
    orders.end(2, RedriveEnd(at_ms=2, why="said later"))
    assert [each.number for each in orders.waiting()] == [1, 3, 4, 5, 6, 7, 8]
    assert [(each.number, end) for each, end in orders.newest(7)][-1] == (2, done)
    (tmp,) = Path(settings.flow.tables).glob("_redrives/main/orders/*8.json")
    tmp.write_text('{"at_ms": 1')
    assert [each.number for each, _ in orders.newest(2)] == [7]


def test_order_that_no_flow_has_taken_for_a_day_is_not_carried_out(settings: CloudSettings) -> None:
    orders = RedriveOrders(settings)
    orders.put(order(at_ms=int((time.time() - TOO_OLD_S - 1) * 1000)))
    queue = RedriveQueue(cast("SparkSession", None), settings)
    queue.look(threading.Event())
    ((_, end),) = orders.newest(1)
    assert end is not None
    assert "order it again" in end.why
    queue.look(threading.Event())


@pytest.mark.slow
def test_running_flow_parses_again_what_is_ordered_and_each_event_lands_once(
    flow: Flow, make_event: Callable[..., Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RedriveQueue.__init__, "__defaults__", (0.05,))
    flow.land([make_event(b'{"t": 1}'), make_event(b'{"t": 2}', content_type=WRONG), make_event(b'{"a": 1, "a": 2}')])
    flow.run()
    assert [row["outcome"] for row in flow.rows("events")] == ["ok", "dead", "dead"]
    flow.settings = with_flow(flow, parsers={**flow.settings.flow.parsers, WRONG: "json"})
    orders, stop = RedriveOrders(flow.settings), threading.Event()
    orders.put(order())

    def watch() -> None:
        try:
            deadline = time.monotonic() + 120
            while orders.waiting() and time.monotonic() < deadline:
                stop.wait(0.05)
            orders.put(order(reason="no-such-reason"))  # one that comes while the flow runs
            while orders.waiting() and time.monotonic() < deadline:
                stop.wait(0.05)
        finally:
            stop.set()

    watcher = threading.Thread(target=watch)
    flow.run(once=False, stop=stop, on_ready=watcher.start)
    watcher.join(60)

    (_, second), (_, first) = orders.newest(2)
    assert first is not None
    assert second is not None
    assert (first.why, first.selected, first.outcomes) == ("", 2, {"dead -> ok": 1})
    assert (second.why, second.selected, second.changed) == ("", 0, 0)
    assert [row["outcome"] for row in flow.rows("events")] == ["ok", "ok", "dead"]
    assert [(row["sequence"], row["value"]) for row in flow.rows("readings")] == [(1, 1.0), (2, 2.0)]
