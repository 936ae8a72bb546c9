"""Subcommands and their common options."""

import argparse
from pathlib import Path
from typing import Any

from fogline.installed import settings_folder
from fogline.process.command_line import Run

_FILE = "cloud.toml"


def add_group(groups: Any, name: str, about: str, **more: Any) -> Any:
    """Add a group of commands. `more`: arguments of `ArgumentParser`. Returns the object that `add_command` takes."""
    return groups.add_parser(name, help=about, **more).add_subparsers(title="commands", metavar="COMMAND", required=True)


def add_command(
    commands: Any, name: str, run: Run, about: str, *, as_json: bool = True, config: bool = True, **more: Any
) -> argparse.ArgumentParser:
    """Add a command with `--config` and, unless it has another way, `--json`. `more`: arguments of `ArgumentParser`."""
    parser: argparse.ArgumentParser = commands.add_parser(name, help=about, **more)
    if config:
        which = f"the settings file (default: {_FILE}, here or in /etc/fogline/cloud)"
        parser.add_argument("--config", type=Path, default=settings_folder(_FILE, "cloud") / _FILE, help=which)
    if as_json:
        parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)
    return parser
