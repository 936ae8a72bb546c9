"""`fogline ledger`: show that nothing is lost and nothing is twice."""

import argparse
import json
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fogline_cloud.cli.common import with_config, with_json
from fogline_cloud.kafka import KafkaClients
from fogline_cloud.ledger.balance import Evidence, Finding, judge
from fogline_cloud.ledger.ranges import shown
from fogline_cloud.ledger.sources import gather
from fogline_cloud.settings import load

MOST_LOSSES = 20
"""Of one stream, for people."""


def register(groups: "argparse._SubParsersAction[Any]") -> None:
    """Add the subcommands."""
    parser = groups.add_parser("ledger", help="show that nothing is lost and nothing is twice")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    verify = commands.add_parser(
        "verify",
        help="hold gateways' counts, Kafka and the tables against each other; status 1 if they do not balance",
        epilog="example: fogline ledger verify --config cloud.toml",
    )
    with_config(verify)
    with_json(verify)
    verify.set_defaults(run=run_verify)


def run_verify(arguments: argparse.Namespace) -> int:
    """Read everything, judge every stream."""
    settings = load(arguments.config)
    streams = gather(KafkaClients(settings.kafka), settings)
    findings = [finding for stream in streams for finding in judge(stream)]
    if arguments.json:
        print(json.dumps(as_json(streams, findings)))
    else:
        show(streams, findings)
    return 1 if findings else 0


def as_json(streams: list[Evidence], findings: list[Finding]) -> dict[str, Any]:
    """The whole verdict for a program."""
    return {
        "balances": not findings,
        "findings": [asdict(finding) for finding in findings],
        "streams": [
            {
                "gateway": each.gateway,
                "stream": each.stream,
                "lane": each.lane,
                "kafka": each.kafka.count,
                "table": each.table.count,
                "pending": sum(last - first + 1 for first, last in each.pending),
                "gaps": each.gaps,
                "losses": [asdict(loss) for loss in each.losses],
                "dropped": each.statement.dropped if each.statement else None,
                "acknowledged": each.statement.acknowledged if each.statement else None,
                "refused": {
                    "edge": each.statement.duplicate if each.statement else None,
                    "bridge": each.bridge_duplicate,
                },
            }
            for each in streams
        ],
    }


def show(streams: list[Evidence], findings: list[Finding]) -> None:
    """The whole verdict for a person."""
    console = Console(width=max(Console().width, 110))  # a stream's name is there to be copied, not cut
    columns = ("gateway", "lane", "stream", "acknowledged", "Kafka", "table", "pending", "resends refused: edge", "bridge")
    table = Table(box=None)
    for name in columns:
        table.add_column(name, no_wrap=True, justify="left" if name in columns[:3] else "right")
    for each in streams:
        told = each.statement
        pending = sum(last - first + 1 for first, last in each.pending)
        counts = (
            told and told.acknowledged,
            each.kafka.count,
            each.table.count,
            pending,
            told and told.duplicate,
            each.bridge_duplicate,
        )
        table.add_row(each.gateway, each.lane, each.stream, *("-" if count is None else f"{count:,}" for count in counts))
    console.print(table)
    for each in streams:
        for loss in each.losses[:MOST_LOSSES]:
            span, place = shown([(loss.first, loss.last)]), f"{each.gateway} {each.lane} {each.stream}"
            text = escape(f"{place}: {span}: {loss.reason}: {loss.detail}")
            console.print(f"[yellow]explained[/yellow] {text}", highlight=False, soft_wrap=True)
        if len(each.losses) > MOST_LOSSES:
            console.print(f"and {len(each.losses) - MOST_LOSSES} more gap records of stream {each.stream}: --json has them all")
    for finding in findings:
        console.print(f"[red]{finding.kind}[/red] {escape(finding.text)}", highlight=False, soft_wrap=True)  # one line each
    console.print("the ledger balances" if not findings else f"the ledger does not balance: {len(findings)} findings")
