"""Parts of the flow at work together: lanes, table `raw`, accepted gaps, replays and maintenance, with Kafka and Spark."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest
from deltalake import DeltaTable

from flows.other_flows import OTHERS, alarm, flow_of
from flows.replays import past, redrive, values, with_flow
from flows.tenant_flow import Flow
from flows.topic_changes import delete_before
from fogline.errors import Misconfigured
from fogline.events.event import Lane
from fogline_cloud.flows import job
from fogline_cloud.flows.driver import raw_sink
from fogline_cloud.flows.driver.raw_sink import RawSink
from fogline_cloud.flows.start.flow_state import accept_gaps, read_states
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.ledger.balance import judge
from fogline_cloud.ledger.sources import gather
from fogline_cloud.maintenance import plan
from fogline_cloud.maintenance.maintain import maintain

LIMIT_S = 120.0


@pytest.mark.slow
def test_records_behind_an_accepted_gap_come_from_table_raw(flow: Flow, make_event) -> None:
    """The query that writes `raw` had read records that Kafka deleted before the parsing query read them."""
    flow.settings = with_flow(flow, raw_days=90)
    flow.land([make_event(b'{"t": 1}'), make_event(b'{"t": 2}')])
    flow.run()
    flow.land([make_event(b'{"t": %d}' % number) for number in (3, 4, 5)])
    flow.land([make_event(b'{"t": 6}')])
    loop = job._QueryLoop(flow.spark, flow.settings, threading.Event(), once=True, accept_new_topics=False)
    loop.run(RawSink, job.QueryCallbacks(), lambda: None)
    delete_before(flow, 6)
    with pytest.raises(Misconfigured, match="Kafka has deleted records that the flow has not read"):
        flow.run()
    for state in read_states(flow.settings):
        if state.gaps:
            accept_gaps(state)
    flow.run()
    assert [number for number, _, _ in values(flow)] == [1, 2, 6]

    every = [row for row in flow.rows("events") if row["outcome"] == "ok"]
    assert redrive(flow, past(every), publish=False).outcomes == {"missing -> ok": 3}
    assert redrive(flow, past(every), publish=False).changed == 0
    flow.land([make_event(b'{"t": 7}')])
    flow.run()

    assert [number for number, _, _ in values(flow)] == [1, 2, 3, 4, 5, 6, 7]
    outcomes = [row["outcome"] for row in flow.rows("events")]
    assert (outcomes.count("ok"), outcomes.count("gap")) == (7, 1)
    assert len(flow.raw_rows()) == 7
    streams = gather(KafkaClients(flow.settings.kafka), flow.settings).streams
    assert [finding for each in streams for finding in judge(each)] == []


@pytest.mark.slow
def test_flows_of_lanes_share_table_raw(flow: Flow, make_event) -> None:
    """Each keeps the records of its own lanes, also when one flow is split, and a replay reads those of its flow."""
    flow.settings = with_flow(flow, raw_days=90)
    flow.land([make_event(b'{"t": 1}', id="t1"), alarm(make_event, "a1")])
    flow.run()
    alarms, rest = flow_of(flow, "alarms", [Lane.ALARM]), flow_of(flow, "rest", OTHERS)
    for number in (2, 3):
        flow.land([make_event(b'{"t": 2}', id=f"t{number}"), alarm(make_event, f"a{number}")])
        alarms.run()
        rest.run()

    headers = [(row["flow"], header) for row in flow.raw_rows() for header in row["headers"]]
    writers = {header["value"].decode(): name for name, header in headers if header["key"] == "ce_id"}
    assert writers == {"t1": "main", "a1": "main", "t2": "rest", "a2": "alarms", "t3": "rest", "a3": "alarms"}
    assert len(flow.raw_rows()) == 6
    alarms.settings = with_flow(alarms, parsers={"application/json": "raw-number"})
    assert redrive(alarms, past(flow.rows("events")), publish=False).outcomes == {"ok -> skip": 2}
    assert sorted(row["id"] for row in flow.rows("readings")) == ["a1", "t1", "t2", "t3"]


@pytest.mark.slow
def test_real_batches_land_once_while_their_tables_are_compacted_and_replayed(
    flow: Flow, make_event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F9."""
    monkeypatch.setattr(plan, "MOST_OPEN", 2)
    monkeypatch.setattr(raw_sink, "DELAY_S", 1)
    flow.settings = with_flow(flow, raw_days=90, trigger_ms=0)
    failures: list[BaseException] = []
    landed, kept, stop, steps = threading.Semaphore(0), threading.Semaphore(0), threading.Event(), list[Any]()

    def compact() -> None:
        try:
            while not stop.is_set():
                assert maintain(flow.settings, steps.append, datetime.now(UTC), dry_run=False), "a step failed"
        except BaseException as error:  # noqa: BLE001 - the test fails with it
            failures.append(error)

    with ThreadPoolExecutor(2) as pool:
        running = pool.submit(flow.run, once=False, stop=stop, on_batch=landed.release, on_raw=kept.release)
        try:
            flow.land([make_event(b'{"t": 0}')])
            assert landed.acquire(timeout=LIMIT_S), "the first batch does not land"
            maintaining = pool.submit(compact)
            for batch in range(12):
                flow.land([make_event(b'{"t": 1}'), make_event(b'{"t": 2}')], partition=batch % 2)
                assert landed.acquire(timeout=LIMIT_S), "a batch does not land"
            while len(flow.raw_rows()) < 25:
                assert kept.acquire(timeout=LIMIT_S), "table raw does not get the records"
            mended = with_flow(flow, parsers={**flow.settings.flow.parsers, "application/json": "raw-number"})
            flow.settings, former = mended, flow.settings
            first = redrive(flow, past(flow.rows("events")), publish=False)
            flow.settings = former
            for batch in range(4):
                flow.land([make_event(b'{"t": 3}'), make_event(b'{"t": 4}')], partition=batch % 2)
                assert landed.acquire(timeout=LIMIT_S), "a batch does not land after the replay"
        finally:
            stop.set()
            running.result(LIMIT_S)
            maintaining.result(LIMIT_S)
    assert failures == []
    assert sum(step.step == "compact" for step in steps) > 2
    assert set(first.outcomes) == {"ok -> skip"}
    assert first.changed >= 23, "the last batch may not have been finished"
    rows = flow.rows("events")
    assert [row["sequence"] for row in rows] == list(range(1, 34))
    assert [row["sequence"] for row in flow.rows("readings")] == [row["sequence"] for row in rows if row["outcome"] == "ok"]
    assert DeltaTable(str(flow.tables / "events")).version() > 20
