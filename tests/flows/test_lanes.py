"""Flows that share the lanes of one tenant and write to the same tables, with a real Kafka and a real Spark."""

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from flows.other_flows import OTHERS, alarm, flow_of
from flows.tenant_flow import Flow
from fogline.errors import Misconfigured
from fogline.events.event import Lane
from fogline_cloud.kafka import topics

LIMIT_S = 120.0


def ids(flow: Flow) -> tuple[list[str], list[str]]:
    events, readings = (sorted(row["id"] for row in flow.rows(table)) for table in ("events", "readings"))
    return events, readings


def test_alarms_get_a_flow_of_their_own_and_each_record_has_one_row(flow: Flow, make_event):
    """The flow of all lanes is split; the backlog of telemetry waits, the alarm lands."""
    flow.land([make_event(id="t1"), alarm(make_event, "a1")])
    flow.run()
    alarms, rest = flow_of(flow, "alarms", [Lane.ALARM]), flow_of(flow, "main", OTHERS)
    flow.land([make_event(id="t2"), alarm(make_event, "a2")])

    alarms.run()
    assert ids(flow) == (["a1", "a2", "t1"], ["a1", "a2", "t1"])
    with pytest.raises(Misconfigured, match=r"another flow with .* has taken over .*, or \[flow\] lanes has changed"):
        flow.run()
    shutil.copytree(flow.checkpoint, rest.checkpoint)
    with pytest.raises(Misconfigured, match=r"\[flow\] lanes has changed, since this checkpoint was used: delete this folder"):
        rest.run()
    shutil.rmtree(rest.checkpoint)
    rest.run()
    flow.land([make_event(id="t3"), alarm(make_event, "a3")])
    flow.land([alarm(make_event, "a4", replayed=True, data=b"4")])
    flow.land([alarm(make_event, "a1", replayed=True, data=b"1")])
    for each in (rest, alarms, rest):
        each.run()

    landed = ["a1", "a2", "a3", "a4", "t1", "t2", "t3"]
    assert ids(flow) == (sorted([*landed, "a1"]), landed), "the event that another flow landed is a duplicate"
    (again,) = [row for row in flow.rows("events") if row["outcome"] == "duplicate"]
    assert (again["id"], again["reason"], again["flow"]) == ("a1", "replayed", "alarms")


@pytest.mark.fault("K7")
def test_a_flow_stops_when_another_one_takes_over_one_of_its_lanes(flow: Flow, make_event):
    flow.land([make_event(id="t1"), alarm(make_event, "a1")])
    alarms = flow_of(flow, "alarms", [Lane.ALARM])
    landed, stop = threading.Event(), threading.Event()
    with ThreadPoolExecutor(1) as pool:
        former = pool.submit(flow.run, once=False, stop=stop, on_batch=landed.set)
        try:
            assert landed.wait(LIMIT_S), "the first flow lands nothing"
            alarms.run()
            flow.land([make_event(id="t2"), alarm(make_event, "a2")])
            with pytest.raises(Misconfigured, match=r"another flow of this name or lane has taken over the table "):
                former.result(LIMIT_S)
        finally:
            stop.set()
    alarms.run()
    assert ids(flow) == (["a1", "a2", "t1"], ["a1", "a2", "t1"])


def test_lanes_that_share_a_topic_are_named_together():
    assert topics.of_lanes(list(Lane), "t") == topics.raw_topics("t")
    assert topics.of_lanes([Lane.ALARM], "t") == [topics.event("t")]
    with pytest.raises(Misconfigured, match=r"\[flow\] lanes: add bulk, which shares"):
        topics.of_lanes([Lane.TELEMETRY], "t")
