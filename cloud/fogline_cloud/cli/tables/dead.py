"""`fogline dead`: events that no parser could read: count them, show them, parse them again."""

import argparse
import base64
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from fogline.address import printable
from fogline.process.console.command_line import add_limit, counted
from fogline.process.console.listing import show_rows, utc
from fogline.process.console.terminal import show, tell
from fogline.process.console.times import moment
from fogline_cloud.cli.common import add_command, add_group, device_argument
from fogline_cloud.cli.tables.flow_replay import replay
from fogline_cloud.settings import CloudSettings, load
from fogline_cloud.store.options import storage_of

if TYPE_CHECKING:
    from fogline_cloud.flows.tables.dead_letters import DeadLetters
    from fogline_cloud.flows.tables.schema import EventOutcome

EXAMPLE = """\
examples:
  fogline dead list --since 7d                  how many, by reason and parser
  fogline dead show --reason malformed --limit 5 the newest five, with their bodies
  fogline dead redrive --parser json --dry-run  what the installed parser would read
  fogline dead redrive --parser json            parse them again; each lands once
"""
_NONE = "there is no such event: all that matches was read"


def register(groups: "argparse._SubParsersAction[Any]") -> None:
    """Add the subcommands."""
    raw: dict[str, Any] = {"epilog": EXAMPLE, "formatter_class": argparse.RawDescriptionHelpFormatter}
    commands = add_group(groups, "dead", "events that no parser could read", description=__doc__, **raw)
    every = [
        add_command(commands, "list", run_list, "count them by outcome, reason and parser", **raw),
        add_command(commands, "show", run_show, "print the newest with their bodies", **raw),
        add_command(commands, "redrive", run_redrive, "parse them again, and land those that can be read now", **raw),
    ]
    for each in every:
        add_selection(each)
    add_limit(every[0], 1000, "the most frequent")
    add_limit(every[1], 20, "the newest")
    every[2].add_argument(
        "--parse-limit-ms", type=counted(10**9), help="CPU time for one event, instead of [flow] parse_limit_ms"
    )
    every[2].add_argument("--dry-run", action="store_true", help="compare only")


def add_selection(parser: argparse.ArgumentParser) -> None:
    """Add the options that select events."""
    parser.add_argument("--outcome", choices=("dead", "slow", "skip"), action="append", help="default: dead and slow")
    parser.add_argument("--reason", help="for example malformed, timeout, no-parser")
    parser.add_argument("--parser", help="name of the parser that they had")
    parser.add_argument("--device", type=device_argument, help="name of the device")
    parser.add_argument("--since", metavar="TIME", help="a date, or 7d: ingested since then (default: all)")


def run_list(arguments: argparse.Namespace) -> int:
    """Print the counts."""
    counts = _letters(arguments, load(arguments.config)).counts()
    shown = counts[: arguments.limit]
    if arguments.json:
        show(json.dumps(msgspec.to_builtins(shown)))
        return 0
    columns = ("events", "outcome", "reason", "parser", "devices", "for example", "first", "last")
    rows = [
        (each.events, each.outcome, each.reason, each.parser, each.devices, each.device, utc(each.first), utc(each.last))
        for each in shown
    ]
    show_rows(columns, rows, _NONE, len(counts) - len(shown))
    return 0


def run_show(arguments: argparse.Namespace) -> int:
    """Print the newest."""
    rows = _letters(arguments, load(arguments.config)).newest(arguments.limit)
    for row in rows:
        if arguments.json:
            show(json.dumps({**row, "ingested": utc(row["ingested"]), "data": _base64(row["data"])}))
        else:
            show(line_of(row))
    if not rows:
        tell(_NONE)
    return 0


def run_redrive(arguments: argparse.Namespace) -> int:
    """Parse again."""
    from fogline_cloud.flows.replay.selection import Selection  # noqa: PLC0415 - a bridge needs no Arrow

    selection = Selection(
        outcomes=frozenset(_outcomes(arguments)),
        since=_since(arguments),
        reason=arguments.reason,
        parser=arguments.parser,
        device=arguments.device,
    )
    return replay(arguments, selection, publish=True, limit_ms=arguments.parse_limit_ms)


def line_of(row: dict[str, Any]) -> str:
    """Return a row as lines of text: of a traceback the last line, of a body the beginning, in hex if it is no text."""
    data: bytes = row["data"] or b""
    try:
        body = data.decode()
    except UnicodeDecodeError:
        body = data.hex(" ")
    detail = (row["detail"] or "").rstrip().rpartition("\n")[2]
    lines = (
        f"{utc(row['ingested'])} {row['topic']}[{row['partition']}] offset {row['offset']}",
        f"{row['device']} {row['subject']} ({row['content_type']}, {row['size_bytes']} bytes)",
        f"{row['outcome']}: {row['reason']}: {detail} (parser: {row['parser'] or 'none'})",
        body,
    )
    return "\n  ".join(printable(each) for each in lines)


def _letters(arguments: argparse.Namespace, settings: CloudSettings) -> "DeadLetters":
    from fogline_cloud.flows.tables.dead_letters import DeadLetters  # noqa: PLC0415 - a bridge needs no Arrow
    from fogline_cloud.flows.tables.files import tables_in  # noqa: PLC0415 - a bridge needs no Arrow

    return DeadLetters(
        tables_in(settings.flow.tables, storage_of(settings)).events,
        settings.flow.name,
        _outcomes(arguments),
        since=_since(arguments),
        reason=arguments.reason,
        parser=arguments.parser,
        device=arguments.device,
    )


def _outcomes(arguments: argparse.Namespace) -> "list[EventOutcome]":
    from fogline_cloud.flows.tables.schema import EventOutcome  # noqa: PLC0415 - a bridge needs no Arrow

    return [EventOutcome(each) for each in arguments.outcome or ("dead", "slow")]


def _since(arguments: argparse.Namespace) -> datetime | None:
    return moment("--since", arguments.since, datetime.now(UTC)) if arguments.since else None


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()
