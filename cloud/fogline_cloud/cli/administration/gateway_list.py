"""`fogline gateway list`: the gateways of bridges, as their metrics show them."""

import argparse
import json
import time
from collections.abc import Iterable
from typing import Any

import msgspec

from fogline.process.console.command_line import add_limit
from fogline.process.console.listing import show_rows, utc
from fogline.process.console.terminal import show
from fogline_cloud.cli.common import add_command
from fogline_cloud.cli.line_metrics import LineMetrics, read_metrics
from fogline_cloud.settings import load


class ListedGateway(msgspec.Struct, kw_only=True):
    """A gateway. Times in seconds since 1970; None: it has sent no statistics, or has no certificate."""

    gateway: str
    connected: bool = False
    last_seen_s: float = 0.0
    version: str | None = None
    backlog: int | None = None
    certificate_end_s: float | None = None


def add_list(commands: Any, raw: dict[str, Any]) -> None:
    """Add the subcommand."""
    about = "print the gateways: connected or not, last seen, version, events that wait, end of the certificate"
    listing = add_command(commands, "list", run_list, about, **raw)
    where = (
        "host:port of a bridge's metrics (default: bridge.metrics); may be repeated, because each bridge has its own gateways"
    )
    listing.add_argument("--metrics", action="append", default=[], metavar="ADDRESS", help=where)
    add_limit(listing, 1000, "the first by name")


def run_list(arguments: argparse.Namespace) -> int:
    """Print the gateways."""
    addresses = arguments.metrics or [load(arguments.config, kafka=False).bridge.metrics]
    key = "--metrics" if arguments.metrics else "bridge.metrics"
    found = gateways_of(read_metrics(each, key) for each in addresses)
    left, found = max(0, len(found) - arguments.limit), found[: arguments.limit]
    if arguments.json:
        show(json.dumps([_facts(each) for each in found]))
        return 0
    heads = ("gateway", "connected", "last seen", "version", "backlog", "certificate ends")
    rows = [
        (
            *(each.gateway, "yes" if each.connected else "no", utc(each.last_seen_s or None), each.version, each.backlog),
            _days(each.certificate_end_s),
        )
        for each in found
    ]
    show_rows(heads, rows, "the bridge knows no gateway", left)
    return 0


def gateways_of(bridges: Iterable[LineMetrics]) -> list[ListedGateway]:
    """Return the gateways of these bridges by name. A gateway that moved counts at the bridge that has seen it last."""
    found: dict[str, ListedGateway] = {}
    for metrics in bridges:
        for name, each in _of_bridge(metrics).items():
            known = found.get(name)
            if known is None or (each.connected, each.last_seen_s) > (known.connected, known.last_seen_s):
                found[name] = each
    return [found[name] for name in sorted(found)]


def _of_bridge(metrics: LineMetrics) -> dict[str, ListedGateway]:
    found: dict[str, ListedGateway] = {}

    def each(name: str) -> Iterable[tuple[ListedGateway, dict[str, str], float]]:
        for labels, value in metrics.of(f"gateway_{name}").items():
            own = dict(labels)
            yield found.setdefault(own["gateway"], ListedGateway(gateway=own["gateway"])), own, value

    for gateway, _, value in each("connected"):
        gateway.connected = bool(value)
    for gateway, _, value in each("last_seen_timestamp_seconds"):
        gateway.last_seen_s = value
    for gateway, labels, _ in each("version_info"):
        gateway.version = labels["version"]
    for gateway, _, value in each("outbox_events"):
        gateway.backlog = (gateway.backlog or 0) + int(value)
    for gateway, _, value in each("certificate_end_timestamp_seconds"):
        gateway.certificate_end_s = value
    return found


def _facts(gateway: ListedGateway) -> dict[str, Any]:
    facts = msgspec.structs.asdict(gateway)
    seen_s, end_s = facts.pop("last_seen_s"), facts.pop("certificate_end_s")
    return facts | {
        "last_seen": utc(seen_s) if seen_s else None,
        "certificate_end": None if end_s is None else utc(end_s),
    }


def _days(end_s: float | None) -> str | None:
    return None if end_s is None else f"{utc(end_s)} ({(end_s - time.time()) / 86_400:.0f} days)"
