"""`fogline-edge history`: the events that rules kept back, and that `keep_days` keeps at the gateway."""

import argparse
import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fogline.commands.history import COLUMNS, row_of
from fogline.errors import Misconfigured
from fogline.process.console.command_line import add_limit
from fogline.process.console.listing import show_rows
from fogline.process.console.terminal import show, tell
from fogline.process.console.times import moment
from fogline_edge.history.history_file import history_state, read_history
from fogline_edge.settings import load

_SOON_MS = 1000


def add_history(commands: Any, config: Path) -> None:
    """Add the command `history`. `config`: the default of its settings file."""
    example = "example: fogline-edge history press-1 --since 2h"
    history = commands.add_parser("history", help="show events that rules kept back, and keep_days keeps", epilog=example)
    history.add_argument("device", help="the device")
    history.add_argument("--since", metavar="TIME", help="from then on: 2h, or 2026-11-01T12:00:00Z (default: all)")
    history.add_argument("--until", metavar="TIME", help="before then (default: now)")
    which = "the settings file (default: edge.toml, here or in /etc/fogline)"
    history.add_argument("--config", type=Path, default=config, help=which)
    add_limit(history, 100, "the oldest")
    history.add_argument("--json", action="store_true", help="print JSON")
    history.set_defaults(run=run_history)


def run_history(arguments: argparse.Namespace) -> int:
    """Print the kept events of a device, the oldest first."""
    settings = load(arguments.config)
    if not any(each.keep_days is not None for each in settings.rules.reduce):
        raise Misconfigured(f"{arguments.config}: no rule of [[rules.reduce]] has keep_days, so no event is kept here")
    now, folder = datetime.now(UTC), Path(settings.data)
    since = 0 if arguments.since is None else _ms(moment("--since", arguments.since, now))
    until = int(time.time() * 1000) + _SOON_MS if arguments.until is None else _ms(moment("--until", arguments.until, now))
    found = read_history(folder, arguments.device, since, until, arguments.limit + 1)
    kept, more = found[: arguments.limit], len(found) > arguments.limit
    if arguments.json:
        show(json.dumps({"events": [json.loads(each.body) for each in kept], "more": more, "history": history_state(folder)}))
        return 0
    rows = [row_of(json.loads(each.body)) for each in kept]
    show_rows(COLUMNS, rows, f"no event of {arguments.device} was kept in this time")
    if more:
        tell(f"there are more: add --since {rows[-1][0]}, or a higher --limit")
    return 0


def _ms(found: datetime) -> int:
    return int(found.timestamp() * 1000)
