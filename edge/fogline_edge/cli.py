"""`fogline-edge`: the command on the gateway's machine."""

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fogline import commandline
from fogline_edge.gateway import check, run_gateway
from fogline_edge.settings import load
from fogline_edge.status import read_events, read_status

EXAMPLE = """\
examples:
  fogline-edge check --config edge.toml      are the settings right?
  fogline-edge run --config edge.toml        serve devices until Ctrl-C
  fogline-edge status --config edge.toml     what is stored, sent, and accepted
  fogline-edge outbox --config edge.toml     the events that wait, oldest first
"""


def build_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser = argparse.ArgumentParser(
        prog="fogline-edge", description=__doc__, epilog=EXAMPLE, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for name, run, text in (
        ("run", run_run, "serve devices until Ctrl-C"),
        ("check", run_check, "check the settings"),
        ("status", run_status, "what is stored, sent, and accepted"),
        ("outbox", run_outbox, "the events that wait, oldest first"),
    ):
        command = commands.add_parser(name, help=text, epilog=f"example: fogline-edge {name} --config edge.toml")
        command.add_argument("--config", type=Path, default=Path("edge.toml"), help="the settings file (default: edge.toml)")
        command.set_defaults(run=run)
        if name in {"status", "outbox"}:
            command.add_argument("--json", action="store_true", help="answer in JSON")
        if name == "outbox":
            command.add_argument("--limit", type=int, default=20, help="how many rows (default: 20)")
            command.add_argument("--quarantine", action="store_true", help="the events that the bridge refused for good")
    return parser


def run_run(arguments: argparse.Namespace) -> int:
    """Serve until a signal."""
    settings = load(arguments.config)
    asyncio.run(
        run_gateway(settings, lambda addresses: commandline.announce(ready="gateway", name=settings.gateway, **addresses))
    )
    return 0


def run_check(arguments: argparse.Namespace) -> int:
    """Read the settings; an error names what is wrong."""
    settings = load(arguments.config)
    check(settings)
    print(f"{arguments.config} is right: gateway {settings.gateway} of {settings.tenant}, outbox in {settings.data}")
    return 0


def run_status(arguments: argparse.Namespace) -> int:
    """Print the counts."""
    status = read_status(Path(load(arguments.config).data))
    if arguments.json:
        print(json.dumps(status))
        return 0
    print(f"gateway {status['gateway']}, {status['bytes']:,} bytes")
    _table(status["streams"], ("lane", "stream", "stored", "duplicate", "dead", "sent", "settled", "backlog", "quarantined"))
    return 0


def run_outbox(arguments: argparse.Namespace) -> int:
    """Print rows."""
    table = "quarantine" if arguments.quarantine else "event"
    rows = read_events(Path(load(arguments.config).data), table, arguments.limit)
    if arguments.json:
        print(json.dumps(rows))
    else:
        for row in rows:
            print(f"{row['stream']:>3} {row['sequence']:>8} {row['body']}")
    return 0


def _table(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> None:
    cells = [columns, *(tuple(str(row[name]) for name in columns) for row in rows)]
    widths = [max(len(line[index]) for line in cells) for index in range(len(columns))]
    for line in cells:
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `fogline-edge`."""
    return commandline.main(build_parser(), arguments)


if __name__ == "__main__":
    sys.exit(main())
