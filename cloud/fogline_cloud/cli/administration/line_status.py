"""`fogline status`: the whole line on one screen, as the processes on this machine tell it."""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from fogline.errors import FoglineError, Misconfigured
from fogline.process.console.listing import show_rows
from fogline.process.console.terminal import show
from fogline_cloud.cli.common import add_command
from fogline_cloud.line_metrics import LineMetrics, gateways_of, read_metrics
from fogline_cloud.settings import load

EXAMPLE = """\
examples:
  fogline status
  fogline status --watch

It asks the bridge, the flow and the API on this machine for their metrics: set `metrics` in [bridge], [flow] and [api].

exit status: 0 all of them work, 1 one does not, or does not answer, 2 the input or the settings are wrong, 130 Ctrl-C
"""
_OK, _UNKNOWN = "ok", "not asked"
_OLD_S = 600.0  # a gateway that is silent for so long is named


class PartStatus(msgspec.Struct, frozen=True):
    """One part of the line. `state`: ok, not asked, or a problem in words."""

    part: str
    state: str
    facts: str = ""


def register(groups: "argparse._SubParsersAction[Any]") -> None:
    """Add the command."""
    raw: dict[str, Any] = {"epilog": EXAMPLE, "formatter_class": argparse.RawDescriptionHelpFormatter}
    add_command(groups, "status", run_status, "show the whole line on one screen", description=__doc__, **raw)


def run_status(arguments: argparse.Namespace) -> int:
    """Show every part. Return 1 if one does not work."""
    settings = load(arguments.config, kafka=False)
    found = [
        *_asked("bridge", settings.bridge.metrics, _bridge),
        *_asked("flow", settings.flow.metrics, _flow),
        *_asked("api", settings.api.metrics, _api),
    ]
    if arguments.json:
        show(json.dumps([msgspec.structs.asdict(each) for each in found]))
    else:
        show_rows(("part", "state", "facts"), [(each.part, each.state, each.facts) for each in found], "")
    return 0 if all(each.state in {_OK, _UNKNOWN} for each in found) else 1


def _asked(part: str, address: str | None, of: Callable[[LineMetrics], Iterator[PartStatus]]) -> Iterator[PartStatus]:
    try:
        metrics = read_metrics(address, f"{part}.metrics")
    except Misconfigured as error:
        yield PartStatus(part, _UNKNOWN if address is None else str(error), str(error) if address is None else "")
    except FoglineError as error:
        yield PartStatus(part, str(error))
    else:
        yield from of(metrics)


def _bridge(metrics: LineMetrics) -> Iterator[PartStatus]:
    ready = sum(metrics.of("shard_ready").values())
    shards = f"{ready:.0f} of {metrics.total('bridge_shards'):.0f} shards ready here"
    commands = f"{metrics.total('bridge_commands'):,.0f} open commands"
    yield PartStatus("bridge", metrics.problem or _OK, f"{shards}, {metrics.total('bridge_clients'):.0f} clients, {commands}")
    gateways = gateways_of([metrics])
    silent = [each.gateway for each in gateways if time.time() - each.last_seen_s > _OLD_S]
    facts = f"{sum(each.connected for each in gateways)} of {len(gateways)} connected"
    waiting = sum(each.backlog or 0 for each in gateways)
    state = f"silent: {_some(silent)}" if silent else _OK
    yield PartStatus("gateways", state, f"{facts}, {waiting:,} events wait (fogline gateway list)")
    counts = {key: int(value) for key, value in metrics.of("bridge_silent_devices").items() if value}
    named = ", ".join(f"{count:,} {_kind(dict(labels))}" for labels, count in sorted(counts.items()))
    yield PartStatus("devices", f"silent: {named}" if named else _OK, "fogline fleet silent" if named else "")


def _flow(metrics: LineMetrics) -> Iterator[PartStatus]:
    last_s = max(metrics.of("flow_last_commit_timestamp_seconds").values(), default=0.0)
    last = f"last commit {max(0.0, time.time() - last_s):,.0f} s ago" if last_s else "no commit yet"
    facts = f"{metrics.total('flow_lag'):,.0f} records behind, {last}"
    if failed := metrics.total("flow_maintenance_failed"):
        facts += f", {failed:.0f} runs of maintenance failed (see its log)"
    yield PartStatus("flow", metrics.problem or _OK, facts)


def _api(metrics: LineMetrics) -> Iterator[PartStatus]:
    facts = f"{metrics.total('api_connections'):.0f} connections, {metrics.total('api_streams'):.0f} streams"
    yield PartStatus("api", metrics.problem or _OK, facts)


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _kind(labels: dict[str, str]) -> str:
    of_lane = f" on lane {labels['lane']}" if labels.get("lane") else ""
    return f"of type {labels.get('type') or 'none'}{of_lane}"
