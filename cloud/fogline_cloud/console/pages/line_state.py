"""The parts of the line from devices to tables, what is said of each, and what is wrong there with what to do. Pure.

What is wrong has the text of its runbook in docs/alerts.md, which a test compares.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from fogline_cloud.console.shown import age
from fogline_cloud.devices.device_table import DeviceEntry
from fogline_cloud.flows.start.flow_state import FlowState
from fogline_cloud.line_metrics import LineMetrics, ListedGateway, gateways_of

HEARD_S: Final = 600.0
"""A device or gateway that was heard within this time counts as alive."""
LAG: Final = {"events": 1000, "raw": 100_000}
"""Records that wait for a table, beyond which the flow does not keep up, as for the alerts."""
STANDS_S: Final = {"events": 60.0, "raw": 300.0}
"""Time without a commit after which a flow for which more records wait than `LAG` is said to stand.

Records wait for table `raw` up to a minute, until a micro-batch is full.
"""
MAX_NAMED: Final = 5
REMEDIES: Final = {
    "FoglineGatewaySilent": "The gateway, its network or its power is gone. Events wait in its outbox. `fogline-edge status` "
    "and `fogline-edge doctor` there name the cause.",
    "FoglineProcessDown": "Restart it; its log says why it ended. Nothing is lost: gateways and Kafka keep the events.",
    "FoglineShardWithoutOwner": "`/healthz` of each bridge says which shards wait for what.",
    "FoglineFlowLag": "`fogline flow status` says what stops it. If it runs, give Spark more cores, or look for a slow parser",
    "FoglineRawLag": "Look for errors of the table's storage in the flow's log.",
}
"""What to do, in the words of the alert's runbook in docs/alerts.md."""


class PartFault(msgspec.Struct, frozen=True):
    """Something wrong. `alert`: the section of docs/alerts.md that says what to do."""

    what: str
    alert: str

    @property
    def remedy(self) -> str:
        """What to do."""
        return REMEDIES[self.alert]


class LinePart(msgspec.Struct, frozen=True):
    """One part of the line: facts by name, and what is wrong."""

    name: str
    facts: dict[str, str]
    faults: list[PartFault]


class FleetGlance(msgspec.Struct, frozen=True):
    """What the registry says of devices and gateways. `gateways`: the time of the newest event, in milliseconds, by gateway."""

    devices: int = 0
    heard: int = 0
    never: int = 0
    gateways: Mapping[str, int] = {}


class BridgeView(msgspec.Struct, frozen=True):
    """What the bridge on this machine says. `problem`: why it cannot work, or "".

    `lanes`: by lane the events that wait in outboxes, the age of the oldest in seconds, and the gateway that has it.
    """

    problem: str
    gateways: list[ListedGateway]
    lanes: Mapping[str, tuple[int, float, str]]


class TopicEnds(msgspec.Struct, frozen=True):
    """The ends of the raw topics, as sums of offsets over partitions, at a time in seconds."""

    at_s: float
    ends: Mapping[str, int]


class FlowView(msgspec.Struct, frozen=True):
    """What is said of the flow.

    `commits`: the time of the last commit by table, in seconds since 1970. `lags`: records that wait, by table and topic.
    `problems`: what stops it.
    """

    commits: Mapping[str, float | None]
    lags: Mapping[tuple[str, str], int]
    problems: list[str]


def glance_at(devices: Iterable[DeviceEntry], now_ms: int) -> FleetGlance:
    """Return what the registry says."""
    count = heard = never = 0
    gateways: dict[str, int] = {}
    for device in devices:
        count += 1
        if device.seen_ms is None:
            never += 1
        elif now_ms - device.seen_ms < HEARD_S * 1000:
            heard += 1
        for gateway, sighting in device.sightings:
            if gateway and sighting.seen_ms > gateways.get(gateway, 0):
                gateways[gateway] = sighting.seen_ms
    return FleetGlance(count, heard, never, gateways)


def view_of(states: list[FlowState], now_s: float) -> FlowView:
    """Return what is said of the queries of a flow."""
    lags: dict[tuple[str, str], int] = {}
    for state in states:
        for (topic, _), offsets in state.lag.items():
            lags[state.table, topic] = lags.get((state.table, topic), 0) + max(0, offsets - 1)  # a transaction's marker
    problems = [problem for state in states for problem in state.problems(now_s)]
    return FlowView({state.table: state.last_commit_s for state in states}, lags, problems)


def device_part(fleet: FleetGlance) -> LinePart:
    """Return the part of the devices."""
    within = age(HEARD_S)
    facts = {"known": f"{fleet.devices:,}", f"heard within {within}": f"{fleet.heard:,}", "never heard": f"{fleet.never:,}"}
    return LinePart("Devices", facts, [])


def bridge_view(metrics: LineMetrics) -> BridgeView:
    """Return what a bridge's metrics say."""
    lanes: dict[str, tuple[int, float, str]] = {}
    oldest = metrics.of("gateway_outbox_oldest_seconds")
    for labels, events in metrics.of("gateway_outbox_events").items():
        lane, gateway = (dict(labels).get(name, "") for name in ("lane", "gateway"))
        count, most_s, where = lanes.get(lane, (0, 0.0, ""))
        own = (oldest.get(labels, 0.0), gateway) if events else (0.0, "")
        lanes[lane] = count + int(events), *max(own, (most_s, where))
    return BridgeView(metrics.problem, gateways_of([metrics]), lanes)


def connected_part(view: BridgeView, now_s: float) -> LinePart:
    """Return the part of the gateways, as the bridge on this machine knows them."""
    away = [each for each in view.gateways if not each.connected or now_s - each.last_seen_s > HEARD_S]
    facts = {"connected": f"{sum(each.connected for each in view.gateways):,} of {len(view.gateways):,}"}
    for lane, (events, age_s, gateway) in sorted(view.lanes.items()):
        if events:
            facts[f"{lane} in outboxes"] = f"{events:,} events, the oldest {age(age_s)} old, in {gateway}"
    named = [
        PartFault(
            f"{each.gateway} {'has been silent' if each.connected else 'is not connected, and has been silent'} "
            f"for {age(now_s - each.last_seen_s)}",
            "FoglineGatewaySilent",
        )
        for each in sorted(away, key=lambda each: -each.last_seen_s)[:MAX_NAMED]
    ]
    if len(away) > MAX_NAMED:
        named.append(PartFault(f"and {len(away) - MAX_NAMED:,} more gateways", "FoglineGatewaySilent"))
    return LinePart("Gateways", facts, named)


def gateway_part(fleet: FleetGlance, now_ms: int) -> LinePart:
    """Return the part of the gateways by their devices' events. One without any may be connected: that is no fault."""
    ages_s = {name: (now_ms - seen_ms) / 1000 for name, seen_ms in fleet.gateways.items()}
    silent = sorted((name for name, age_s in ages_s.items() if age_s >= HEARD_S), key=lambda name: ages_s[name])
    named = [f"{name} for {age(ages_s[name])}" for name in silent[:MAX_NAMED]]
    if len(silent) > MAX_NAMED:
        named.append(f"{len(silent) - MAX_NAMED:,} more")
    facts = {"known": f"{len(ages_s):,}", f"with events within {age(HEARD_S)}": f"{len(ages_s) - len(silent):,}"}
    return LinePart("Gateways", {**facts, "without events": ", ".join(named)} if named else facts, [])


def bridge_part(away: str, problem: str = "", gone: str = "") -> LinePart:
    """Return the part of the bridges. `away`: why none answers, "" if one does.

    Of the one on this machine: `problem`: why it cannot work; `gone`: why it is not there.
    """
    faults = [PartFault(f"no bridge answers: {away}", "FoglineProcessDown")] if away else []
    if gone:
        faults.append(PartFault(f"the bridge on this machine is not there: {gone}", "FoglineProcessDown"))
    if problem and not away and not gone:
        faults.append(PartFault(f"the bridge on this machine: {problem}", "FoglineShardWithoutOwner"))
    return LinePart("Bridges", {"connection": "none" if away else "works"}, faults)


def kafka_part(away: str, former: TopicEnds | None, newest: TopicEnds | None) -> LinePart:
    """Return the part of Kafka, with records a second of each raw topic. `away`: why Kafka does not answer, or ""."""
    facts = {}
    for topic, end in newest.ends.items() if newest is not None else ():
        before, seconds = former.ends.get(topic, end) if former else end, newest.at_s - former.at_s if newest and former else 0
        facts[topic] = f"{max(0, end - before) / seconds:,.0f} records/s" if seconds > 0 else "-"
    faults = [PartFault(f"Kafka does not answer: {away}", "FoglineProcessDown")] if away else []
    return LinePart("Kafka", facts, faults)


def flow_part(view: FlowView | None, why: str, now_s: float, gone: str = "") -> LinePart:
    """Return the part of the flow. `why`: the reason if nothing can be said of it; `gone`: why its process is not there."""
    down = [PartFault(f"the flow does not run: {gone}", "FoglineProcessDown")] if gone else []
    if view is None:
        unknown = [PartFault(why, "FoglineFlowLag")] if why else []
        return LinePart("Flow", {"state": "not known yet"} if not why else {}, [*down, *unknown])
    waiting: dict[str, int] = {}
    for (table, _), count in view.lags.items():
        waiting[table] = waiting.get(table, 0) + count
    faults = [*down, *(PartFault(each, "FoglineFlowLag") for each in view.problems)]
    for table, count in waiting.items():
        last_s = view.commits.get(table)
        if not faults and count > LAG[table] and (last_s is None or now_s - last_s > STANDS_S[table]):
            since = "no commit came yet" if last_s is None else f"the last commit came {age(now_s - last_s)} ago"
            alert = "FoglineRawLag" if table == "raw" else "FoglineFlowLag"
            faults.append(PartFault(f"{count:,} records wait for table {table}, and {since}", alert))
    return LinePart("Flow", {f"wait for {table}": f"{count:,} records" for table, count in waiting.items()}, faults)


def table_part(view: FlowView | None, now_s: float) -> LinePart:
    """Return the part of the tables."""
    commits = view.commits if view is not None else {}
    facts = {
        name: "no commit yet" if last_s is None else f"commit {age(now_s - last_s)} ago" for name, last_s in commits.items()
    }
    return LinePart("Tables", facts or {"state": "none yet"}, [])
