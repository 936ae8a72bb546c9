"""`fogline gateway list`: the gateways of bridges, as their metrics show them."""

import argparse
import json
import time
from typing import Any

import msgspec

from fogline.process.console.command_line import add_limit
from fogline.process.console.listing import show_rows, utc
from fogline.process.console.terminal import show
from fogline_cloud.cli.common import add_command
from fogline_cloud.line_metrics import ListedGateway, gateways_of, read_metrics
from fogline_cloud.settings import load


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


def _facts(gateway: ListedGateway) -> dict[str, Any]:
    facts = msgspec.structs.asdict(gateway)
    seen_s, end_s = facts.pop("last_seen_s"), facts.pop("certificate_end_s")
    return facts | {
        "last_seen": utc(seen_s) if seen_s else None,
        "certificate_end": None if end_s is None else utc(end_s),
    }


def _days(end_s: float | None) -> str | None:
    return None if end_s is None else f"{utc(end_s)} ({(end_s - time.time()) / 86_400:.0f} days)"
