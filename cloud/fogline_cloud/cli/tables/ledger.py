"""`fogline ledger`: prove that no event is lost or duplicated."""

import argparse
import json
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fogline.gateway.ledger import RuleCounts, total_by_rule
from fogline.process.console.listing import utc
from fogline.process.console.terminal import escaped, show
from fogline.process.console.times import day, moment, seconds
from fogline_cloud.cli.common import add_command, add_group, device_argument
from fogline_cloud.cli.tables.ledger_document import add_document, register_check, signer_of, write_document
from fogline_cloud.ledger.balance import LedgerFinding, StreamEvidence
from fogline_cloud.ledger.proof import Proof
from fogline_cloud.ledger.ranges import shown, size
from fogline_cloud.ledger.sources import GatheredEvidence
from fogline_cloud.ledger.verification import Period, verify
from fogline_cloud.settings import load

MOST_LOSSES = 20
"""Largest number of printed gap records of one stream. JSON contains all."""


EXAMPLE = """\
examples:
  fogline ledger verify                              every event so far, and which gateway has been silent for an hour
  fogline ledger verify --day yesterday              prove that yesterday is complete
  fogline ledger verify --since 7d --device lamp-1   prove the last seven days of one device
  fogline ledger verify --day yesterday --document yesterday.jws
                                                     the same as a signed document, to hand over
  fogline ledger check-proof yesterday.jws --ca ca.pem

Kafka and table count the gateway's own statements and gap records too, which no device sent. `acknowledged` counts what devices
sent, with their retransmissions.

A device is proven if every stream of every gateway that may have heard it has arrived, without a hole. bridge.access says which
gateways may send its events; without a [[device]] there, all of them may.

A document is signed with the certificate of [bridge.tls], or that of --sign-with and --sign-key: one of `fogline ca issue
bridge`. It is a JSON Web Signature (RFC 7515), which other programs can check too.

exit status: 0 every event of the period is in the tables once, 1 not, or not proven, 2 the input, the settings or the signature
are wrong, 130 Ctrl-C
"""


def register(groups: "argparse._SubParsersAction[Any]") -> None:
    """Add the subcommands."""
    raw: dict[str, Any] = {"epilog": EXAMPLE, "formatter_class": argparse.RawDescriptionHelpFormatter}
    commands = add_group(groups, "ledger", "prove that no event is lost or duplicated", description=__doc__, **raw)
    about = "compare gateways' counts, Kafka and the tables; exit status 1 if they do not balance, or are not complete"
    parser = add_command(commands, "verify", run_verify, about, **raw)
    full = "read all records and rows, also those that an earlier run has read, and check the marks of that run"
    parser.add_argument("--full", action="store_true", help=full)
    period = parser.add_mutually_exclusive_group()
    period.add_argument("--day", help="prove a day in UTC: 2026-11-27, `yesterday` or `today`")
    period.add_argument("--since", help="prove the time from then on until --silent ago: 7d, or 2026-11-01")
    parser.add_argument("--device", type=device_argument, help="prove this device only")
    silent = "a gateway without a statement for so long is silent (default: 1h)"
    parser.add_argument("--silent", default="1h", help=silent)
    left_out = "leave a gateway out that was taken out of service; may be repeated"
    parser.add_argument("--except", dest="left_out", action="append", default=[], metavar="GATEWAY", help=left_out)
    add_document(parser)
    register_check(commands, **raw)


def run_verify(arguments: argparse.Namespace) -> int:
    """Compare the evidence of every stream. Return 1 if there is a finding, or if a gateway may hold events of the period."""
    settings = load(arguments.config)
    now = datetime.now(UTC)
    period = _period(arguments, now)
    signer = signer_of(arguments, settings)
    found = verify(settings, period, device=arguments.device, left_out=arguments.left_out, full=arguments.full)
    if arguments.json:
        read = {"tables": asdict(found.gathered.tables), "kafka": asdict(found.gathered.kafka)}
        values = {**as_json(found.gathered.streams, found.findings), **proof_as_json(found.proof, period), "read": read}
        show(json.dumps(values))
    else:
        show_streams(found.gathered, found.streams, found.findings)
        show_proof(found.proof, arguments.day or arguments.since or "", arguments.device)
    complete = found.complete
    if signer is not None:
        complete = write_document(arguments.document, settings, found, signer, now)
    return 0 if complete else 1


def _period(arguments: argparse.Namespace, now: datetime) -> Period:
    """Return the period. Raises `Misconfigured`."""
    silent = now - timedelta(seconds=seconds("--silent", arguments.silent))
    if arguments.day is not None:
        begin = day("--day", arguments.day, now)
        return Period(begin, min(begin + timedelta(days=1), silent))
    return Period(moment("--since", arguments.since, now) if arguments.since is not None else None, silent)


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
                "rules": each.statement.rules if each.statement else {},
            }
            for each in streams
        ],
    }


def proof_as_json(proof: Proof, period: Period) -> dict[str, Any]:
    """Return the proof as JSON values. Times are milliseconds since 1970."""
    silent = {each.gateway for each in proof.silent}
    gateways = [{**asdict(each), "silent": each.gateway in silent} for each in proof.gateways]
    return {
        "proven": proof.proven,
        "period_ms": [period.begin_ms, period.end_ms],
        "complete_ms": proof.complete_ms,
        "gateways": gateways,
        "left_out": proof.left_out,
    }


def show_proof(proof: Proof, period: str, device: str | None) -> None:
    """Print until when the tables are complete, which gateways are silent, and whether the period is proven."""
    what = f"{period or 'the time'} until {_shown(proof.until_ms)}" + (f", device {device}" if device else "")
    if not proof.gateways:
        show(f"not proven: {what}: no gateway has sent events")
        return
    for each in proof.silent:
        since = f"silent since {_shown(each.last_ms)}" if each.last_ms else "without a known time"
        why = f" ({each.why})" if each.why else ""
        complete = f"complete until {_shown(each.complete_ms)}"
        show(f"not complete: gateway {each.gateway}: {complete}, {since}, last backlog {each.backlog:,}{why}")
    others = len(proof.gateways) - len(proof.silent)
    if others:
        exceptions = f", except {', '.join(each.gateway for each in proof.silent)}" if proof.silent else ""
        show(f"complete until {_shown(proof.complete_ms)}{exceptions}")
    left_out = f"; left out: {', '.join(proof.left_out)}" if proof.left_out else ""
    holes = f": {len(proof.holes)} findings" if proof.holes else ""
    show(f"{'proven' if proof.proven else 'not proven'}: {what}{holes}{left_out}")


def _shown(ms: int) -> str:
    return utc(ms / 1000) if ms else "an unknown time"


def show_streams(gathered: GatheredEvidence, streams: list[StreamEvidence], findings: list[LedgerFinding]) -> None:
    """Print the streams and the findings as text."""
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
    for line in _rules_as_text(streams):
        console.print(_plain(line), highlight=False, soft_wrap=True)
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


def _rules_as_text(streams: list[StreamEvidence]) -> list[str]:
    """Return a line for each rule of each gateway: what it did with events, as far as the gateway's statements tell."""
    by_gateway: dict[str, list[RuleCounts]] = {}
    for each in streams:
        if each.statement is not None:
            by_gateway.setdefault(each.gateway, []).append(each.statement.rules)
    return [
        f"rule {rule} of gateway {gateway}: " + ", ".join(f"{events:,} {outcome}" for outcome, events in outcomes.items())
        for gateway, counted in by_gateway.items()
        for rule, outcomes in total_by_rule(counted).items()
    ]


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
