"""`fogline ledger`: prove that no event is lost or duplicated."""

import argparse
import json
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fogline.process.terminal import escaped, show
from fogline_cloud.cli.common import add_command, add_group
from fogline_cloud.kafka import KafkaClients
from fogline_cloud.ledger.balance import LedgerFinding, StreamEvidence, judge
from fogline_cloud.ledger.ranges import shown, size
from fogline_cloud.ledger.sources import GatheredEvidence, gather
from fogline_cloud.settings import load

MOST_LOSSES = 20
"""Largest number of printed gap records of one stream. JSON contains all."""


def register(groups: "argparse._SubParsersAction[Any]") -> None:
    """Add the subcommands."""
    commands = add_group(groups, "ledger", "prove that no event is lost or duplicated")
    about = "compare gateways' counts, Kafka and the tables; exit status 1 if they do not balance"
    parser = add_command(commands, "verify", run_verify, about, epilog="example: fogline ledger verify --config cloud.toml")
    full = "read all records and rows, also those that an earlier run has read, and check the marks of that run"
    parser.add_argument("--full", action="store_true", help=full)


def run_verify(arguments: argparse.Namespace) -> int:
    """Compare the evidence of every stream. Return 1 if there is a finding."""
    settings = load(arguments.config)
    gathered = gather(KafkaClients(settings.kafka), settings, full=arguments.full)
    findings = [finding for stream in gathered.streams for finding in judge(stream)]
    if arguments.json:
        show(json.dumps({**as_json(gathered.streams, findings), "read": _read_as_json(gathered)}))
    else:
        show_result(gathered, findings)
    return 1 if findings or gathered.tables.wrong or gathered.kafka.wrong else 0


def _read_as_json(gathered: GatheredEvidence) -> dict[str, Any]:
    return {"tables": asdict(gathered.tables), "kafka": asdict(gathered.kafka)}


def as_json(streams: list[StreamEvidence], findings: list[LedgerFinding]) -> dict[str, Any]:
    """Return the result as JSON values."""
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
                "pending": size(each.pending),
                "gaps": each.gaps,
                "losses": [asdict(loss) for loss in each.losses],
                "dropped": each.statement.dropped if each.statement else None,
                "acknowledged": each.statement.acknowledged if each.statement else None,
                "refused": {"edge": each.statement.duplicate if each.statement else None, "bridge": each.bridge_duplicate},
            }
            for each in streams
        ],
    }


def show_result(gathered: GatheredEvidence, findings: list[LedgerFinding]) -> None:
    """Print the result as text."""
    streams = gathered.streams
    console = Console(width=max(Console().width, 110))  # stream names are copied from here, so they must not be cut
    columns = ("gateway", "lane", "stream", "acknowledged", "Kafka", "table", "pending", "resends refused: edge", "bridge")
    table = Table(box=None)
    for name in columns:
        table.add_column(name, no_wrap=True, justify="left" if name in columns[:3] else "right")
    for each in streams:
        acknowledged, refused = (each.statement.acknowledged, each.statement.duplicate) if each.statement else (None, None)
        counts = (acknowledged, each.kafka.count, each.table.count, size(each.pending), refused, each.bridge_duplicate)
        table.add_row(
            *map(_plain, (each.gateway, each.lane, each.stream)),
            *("-" if count is None else f"{count:,}" for count in counts),
        )
    console.print(table)
    for each in streams:
        for loss in each.losses[:MOST_LOSSES]:
            span = shown([(loss.first, loss.last)])
            text = _plain(f"{each.gateway} {each.lane} {each.stream}: {span}: {loss.reason}: {loss.detail}")
            console.print(f"[yellow]explained[/yellow] {text}", highlight=False, soft_wrap=True)
        if len(each.losses) > MOST_LOSSES:
            console.print(f"and {len(each.losses) - MOST_LOSSES} more gap records of stream {each.stream}: --json prints all")
    for finding in findings:
        console.print(f"[red]{finding.kind}[/red] {_plain(finding.text)}", highlight=False, soft_wrap=True)  # one line each
    for line in _read_as_text(gathered):
        console.print(escaped(line), highlight=False, markup=False, soft_wrap=True)
    console.print("the ledger balances" if not findings else f"the ledger does not balance: {len(findings)} findings")


def _plain(text: str) -> str:
    """Return text of others for rich, which has a markup of its own."""
    return escape(escaped(text))


def _read_as_text(gathered: GatheredEvidence) -> list[str]:
    tables, kafka = gathered.tables, gathered.kafka
    lines = [f"read again: {why}" for why in (*tables.again, *kafka.again)]
    lines += [f"wrong marks: {day or 'all rows'}: the rows have changed without a commit, or the marks" for day in tables.wrong]
    lines += [f"wrong marks: {where}: the records have changed, or the marks" for where in kafka.wrong]
    known = f" ({tables.known + kafka.known:,} known from earlier runs: --full reads them again)" * bool(
        tables.known + kafka.known
    )
    records = f"Kafka {kafka.records:,} records in {kafka.seconds:.1f} s"
    return [*lines, f"read: tables {tables.rows:,} rows in {tables.seconds:.1f} s, {records}{known}"]
