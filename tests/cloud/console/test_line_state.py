"""What the page says of each part of the line: a transcript of states, and the words of the runbooks."""

import re

import pytest

from fogline_cloud.console.pages.line_state import (
    HEARD_S,
    LAG,
    MAX_NAMED,
    REMEDIES,
    STANDS_S,
    FleetGlance,
    FlowView,
    TopicEnds,
    bridge_part,
    bridge_view,
    connected_part,
    device_part,
    flow_part,
    gateway_part,
    glance_at,
    kafka_part,
    table_part,
)
from fogline_cloud.devices.device_table import DeviceEntry
from fogline_cloud.devices.record import DeviceSighting
from fogline_cloud.line_metrics import LineMetrics
from rules.source import ROOT

NOW_MS, NOW_S = 1_790_000_000_000, 1_790_000_000.0


def heard(name, *ages_s):
    sightings = tuple((f"gw-{n}", DeviceSighting(seen_ms=NOW_MS - int(age_s * 1000))) for n, age_s in enumerate(ages_s, 1))
    return DeviceEntry(name=name, sightings=sightings)


def test_devices_and_gateways_are_counted_by_when_they_were_heard():
    devices = [
        heard("a", 1, 5000),
        heard("b", HEARD_S + 1),
        heard("c"),
        DeviceEntry(name="d", sightings=(("", DeviceSighting(seen_ms=NOW_MS)),)),
    ]
    glance = glance_at(devices, NOW_MS)
    assert (glance.devices, glance.heard, glance.never) == (4, 2, 1)
    assert device_part(glance).facts == {"known": "4", "heard within 10 min": "2", "never heard": "1"}
    assert gateway_part(glance, NOW_MS).facts == {
        "known": "2",
        "with events within 10 min": "1",
        "without events": "gw-2 for 83 min",
    }


def test_many_silent_gateways_are_named_by_the_shortest_silence_and_counted():
    silent = {f"gw-{n}": NOW_MS - (1000 + n) * 1000 for n in range(MAX_NAMED + 3)}
    named = gateway_part(FleetGlance(gateways=silent), NOW_MS).facts["without events"]
    assert named.startswith("gw-0 for ")
    assert named.endswith(", 3 more")


@pytest.mark.parametrize("part", [bridge_part, lambda why: kafka_part(why, None, None)])
def test_bridge_and_kafka_that_do_not_answer_are_faults_with_the_reason(part):
    assert part("").faults == []
    (fault,) = part("connection refused").faults
    assert "connection refused" in fault.what
    assert fault.remedy


def test_gateways_of_the_bridge_here_have_their_backlog_by_lane_and_a_silent_one_is_a_fault():
    def of(lane, gateway="gw-1"):
        return (("gateway", gateway), ("lane", lane))

    metrics = LineMetrics(
        "shard 1 waits",
        {
            "fogline_gateway_connected": {(("gateway", "gw-1"),): 1.0, (("gateway", "gw-2"),): 0.0},
            "fogline_gateway_last_seen_timestamp_seconds": {
                (("gateway", "gw-1"),): NOW_S - 1,
                (("gateway", "gw-2"),): NOW_S - HEARD_S - 1,
            },
            "fogline_gateway_outbox_events": {of("alarm"): 0.0, of("telemetry"): 5.0, of("telemetry", "gw-2"): 1000.0},
            "fogline_gateway_outbox_oldest_seconds": {of("alarm"): 99.0, of("telemetry"): 1.0, of("telemetry", "gw-2"): 7200.0},
        },
    )
    view = bridge_view(metrics)
    part = connected_part(view, NOW_S)
    assert part.facts == {"connected": "1 of 2", "telemetry in outboxes": "1,005 events, the oldest 2 h old, in gw-2"}
    assert [each.what for each in part.faults] == ["gw-2 is not connected, and has been silent for 10 min"]
    assert [each.what for each in bridge_part("", view.problem).faults] == ["the bridge on this machine: shard 1 waits"]
    assert len(bridge_part("refused", view.problem).faults) == 1


def test_rates_are_those_between_two_looks():
    former, newest = TopicEnds(10.0, {"t": 100, "u": 5}), TopicEnds(12.0, {"t": 300, "u": 5, "v": 7})
    assert kafka_part("", former, newest).facts == {"t": "100 records/s", "u": "0 records/s", "v": "0 records/s"}
    assert kafka_part("", None, newest).facts == {"t": "-", "u": "-", "v": "-"}
    assert kafka_part("", newest, TopicEnds(14.0, {"t": 0})).facts == {"t": "0 records/s"}, "a topic that was made again"


@pytest.mark.parametrize(
    ("more", "commit_s", "problems", "faults"),
    [
        (0, -9999, [], 0),
        (1, 0, [], 0),
        (1, -1, [], 1),
        (1, None, [], 1),
        (1, -9999, ["the checkpoint is gone"], 1),
        (0, 0, ["one", "two"], 2),
    ],
)
@pytest.mark.parametrize("table", ["events", "raw"])
def test_flow_is_at_fault_if_something_stops_it_or_much_waits_and_no_commit_comes(table, more, commit_s, problems, faults):
    """`more`: records beyond those that may wait. `commit_s`: the last commit, from the last moment at which none is missed."""
    count, last_s = LAG[table] + more, None if commit_s is None else NOW_S - STANDS_S[table] + commit_s
    view = FlowView({table: last_s}, {(table, "t"): count - count // 2, (table, "u"): count // 2}, problems)
    part = flow_part(view, "", NOW_S)
    assert part.facts == {f"wait for {table}": f"{count:,} records"}
    assert len(part.faults) == faults


def test_table_raw_that_waits_for_a_full_micro_batch_is_no_fault():
    """Records wait for it up to a minute, and after a pause the last commit is older still."""
    view = FlowView({"events": NOW_S, "raw": NOW_S - 140}, {("raw", "t"): 50_000}, [])
    assert flow_part(view, "", NOW_S).faults == []


def test_flow_and_tables_of_which_nothing_is_known():
    assert flow_part(None, "", NOW_S).faults == []
    assert [each.what for each in flow_part(None, "no access", NOW_S).faults] == ["no access"]
    assert table_part(None, NOW_S).facts == {"state": "none yet"}
    assert table_part(FlowView({"events": NOW_S - 5, "raw": None}, {}, []), NOW_S).facts == {
        "events": "commit 5 s ago",
        "raw": "no commit yet",
    }


def test_remedies_are_the_words_of_the_runbooks():
    text = (ROOT / "docs" / "alerts.md").read_text("utf-8")
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    for alert, remedy in REMEDIES.items():
        assert remedy in " ".join(sections[alert].split())
