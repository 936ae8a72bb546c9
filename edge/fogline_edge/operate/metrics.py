"""The metrics and the health of a gateway."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from fogline.errors import Misconfigured
from fogline.events.event import Lane
from fogline.process.monitoring.metrics import Sample, samples_of
from fogline.process.monitoring.statistics import read_process
from fogline.tracing.activation import read_tracing
from fogline_edge.downlink.downlink import Downlink
from fogline_edge.operate.status import COUNTERS, read_oldest, read_status
from fogline_edge.uplink.uplink import Uplink


class AdapterCounters(NamedTuple):
    """The counters of one adapter, a dataclass, and the prefix and labels of their metrics."""

    prefix: str
    counters: Any
    labels: tuple[str, ...] = ()


def read_gateway(folder: Path, uplink: Uplink, downlink: Downlink, adapters: list[AdapterCounters]) -> Iterator[Sample]:
    """Yield the present samples of a gateway. `folder`: that of the outbox. Runs on the loop."""
    yield from read_process()
    yield from read_tracing()
    yield from _read_outbox(folder)
    yield Sample("fogline_uplink_connected", int(uplink.connected))
    yield Sample("fogline_uplink_connections_total", uplink.state.connections + uplink.connected)
    yield Sample("fogline_uplink_settlement_seconds", uplink.state.settlement_seconds)
    yield from samples_of("downlink", downlink.counters)
    for each in adapters:
        yield from samples_of(*each)


def _read_outbox(folder: Path) -> Iterator[Sample]:
    try:
        status, oldest = read_status(folder), read_oldest(folder)
    except Misconfigured:  # the file cannot be read now
        return
    totals: Counter[tuple[str, Lane]] = Counter()
    for stream in status["streams"]:
        for name in (*COUNTERS, "backlog"):
            totals[name, Lane(stream["lane"])] += stream[name]
    for lane in Lane:
        for name in COUNTERS:
            yield Sample(f"fogline_outbox_{name.removesuffix('_events')}_total", totals[name, lane], (lane.value,))
        yield Sample("fogline_outbox_backlog", totals["backlog", lane], (lane.value,))
        yield Sample("fogline_outbox_oldest_seconds", oldest.get(lane, 0.0), (lane.value,))
    for rule, outcomes in status["rules"].items():
        for outcome, events in outcomes.items():
            yield Sample("fogline_outbox_rule_events_total", events, (rule, outcome))
    yield Sample("fogline_outbox_file_bytes", status["bytes"])
    yield from _read_history(status["history"])
    if (keys := status["credentials"]) is not None:
        yield Sample("fogline_credentials_devices", keys["devices"])
        yield Sample("fogline_credentials_complete", int(keys["complete"]))


def _read_history(history: dict[str, Any] | None) -> Iterator[Sample]:
    if history is None or "problem" in history:
        return
    yield Sample("fogline_history_events", history["events"])
    yield Sample("fogline_history_forgotten_total", history["forgotten"])
    yield Sample("fogline_history_file_bytes", history["bytes"])
