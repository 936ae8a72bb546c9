"""Subcommands and their common options."""

import argparse
from pathlib import Path
from typing import Any

from fogline.process.command_line import Run


def add_group(groups: Any, name: str, about: str, **more: Any) -> Any:
    """Add a group of commands. `more`: arguments of `ArgumentParser`. Returns the object that `add_command` takes."""
    return groups.add_parser(name, help=about, **more).add_subparsers(title="commands", metavar="COMMAND", required=True)


def add_command(
    commands: Any, name: str, run: Run, about: str, *, as_json: bool = True, config: bool = True, **more: Any
) -> argparse.ArgumentParser:
    """Add a command with `--config` and, unless it has another way, `--json`. `more`: arguments of `ArgumentParser`."""
    parser: argparse.ArgumentParser = commands.add_parser(name, help=about, **more)
    if config:
        parser.add_argument("--config", type=Path, default=Path("cloud.toml"), help="the settings file (default: cloud.toml)")
    if as_json:
        parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)
    return parser
