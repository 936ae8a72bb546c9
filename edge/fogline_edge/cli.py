"""`fogline-edge`: the command on the gateway's machine."""

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fogline import commandline
from fogline.errors import Misconfigured
from fogline.one_cpu import stay_on_one_cpu
from fogline_edge.adapters.ble.state import convert_state, lines_of
from fogline_edge.gateway import check, require_bluetooth, run_gateway
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.outbox.quarantine import Place
from fogline_edge.profiles.ble_files import chosen, in_the_box
from fogline_edge.settings import Settings, load
from fogline_edge.status import read_events, read_status

EXAMPLE = """\
examples:
  fogline-edge check --config edge.toml      are the settings right?
  fogline-edge run --config edge.toml        serve devices until Ctrl-C
  fogline-edge status --config edge.toml     what is stored, sent, and accepted
  fogline-edge outbox --config edge.toml     the events that wait, oldest first
  fogline-edge outbox --quarantine --resend  send the events again that the bridge had refused
  fogline-edge ble scan                      the Bluetooth devices that are heard, and their profiles
"""
BLE_EXAMPLE = """\
examples:
  fogline-edge ble scan                            a live table, until Ctrl-C
  fogline-edge ble scan --seconds 20 --json        for programs
  fogline-edge ble scan --profile lock.toml        with a profile of one's own
"""
_RAW = argparse.RawDescriptionHelpFormatter


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
            act = command.add_mutually_exclusive_group()
            act.add_argument("--delete", action="store_true", help="delete what --quarantine lists (stop the gateway first)")
            act.add_argument(
                "--resend", action="store_true", help="send what --quarantine lists again (stop the gateway first)"
            )
    _add_ble(commands)
    return parser


def _add_ble(commands: Any) -> None:
    """`fogline-edge ble ...`."""
    ble = commands.add_parser("ble", help="Bluetooth LE: what is heard", epilog=BLE_EXAMPLE, formatter_class=_RAW)
    actions = ble.add_subparsers(title="commands", metavar="COMMAND", required=True)
    found = actions.add_parser(
        "scan", help="list what is heard, and what to add to the settings", epilog=BLE_EXAMPLE, formatter_class=_RAW
    )
    found.add_argument("--seconds", type=float, help="how long (default: until Ctrl-C; 10 where the output is no terminal)")
    found.add_argument("--adapter", help="its name (hci1) or address (default: the first)")
    found.add_argument("--profile", type=Path, action="append", default=[], help="a profile of one's own; may be given again")
    found.add_argument("--json", action="store_true", help="answer in JSON, at the end")
    found.set_defaults(run=run_ble_scan)


def run_ble_scan(arguments: argparse.Namespace) -> int:
    """Scan until Ctrl-C."""
    require_bluetooth()
    from fogline_edge.adapters.ble.scan import Options, scan  # noqa: PLC0415 - only Linux has it

    profiles = [*chosen([str(each) for each in arguments.profile], "--profile"), *in_the_box().values()]
    seconds = arguments.seconds or (None if sys.stdout.isatty() else 10.0)
    asyncio.run(scan(Options(profiles, seconds, arguments.adapter, arguments.json)))
    return 0


def run_run(arguments: argparse.Namespace) -> int:
    """Serve until a signal."""
    settings = load(arguments.config)
    if settings.one_cpu:
        stay_on_one_cpu()
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
    columns = (
        "lane",
        "stream",
        "stored",
        "duplicate",
        "filtered",
        "dead",
        "sent",
        "settled",
        "backlog",
        "dropped",
        "quarantined",
    )
    _table(status["streams"], columns)
    if "ble" in status:
        print(*lines_of(convert_state(status["ble"])), sep="\n")
    return 0


def run_outbox(arguments: argparse.Namespace) -> int:
    """Print rows, and with `--delete` or `--resend` take them out of the quarantine."""
    settings = load(arguments.config)
    if (arguments.delete or arguments.resend) and not arguments.quarantine:
        raise Misconfigured("--delete and --resend are for refused events: add --quarantine")
    rows = read_events(Path(settings.data), "quarantine" if arguments.quarantine else "event", arguments.limit)
    if arguments.json:
        print(json.dumps(rows))
    else:
        for row in rows:
            print(f"{row['stream']:>3} {row['sequence']:>8} {row['body']}")
    if rows and (arguments.delete or arguments.resend):
        places = [(row["stream"], row["sequence"]) for row in rows]
        taken = asyncio.run(empty_quarantine(settings, places, resend=arguments.resend))
        text = "put back: the gateway sends them when it runs" if arguments.resend else "deleted"
        print(f"{taken} of {len(rows)} events {text}", file=sys.stderr)
    return 0


async def empty_quarantine(settings: Settings, places: Sequence[Place], *, resend: bool) -> int:
    """Delete refused events or put them back. Raises `Misconfigured` while a gateway uses the outbox."""
    outbox = Outbox.open(settings)
    try:
        return await (outbox.resend_refused(places) if resend else outbox.delete_refused(places))
    finally:
        await outbox.close()


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
