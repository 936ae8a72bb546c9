"""Subcommands and their common options."""

import argparse
import json
from pathlib import Path
from typing import Any, NoReturn

from fogline.address import addressed_device
from fogline.errors import Misconfigured, Poison
from fogline.installed import settings_folder
from fogline.process.console.command_line import Run, add_watch
from fogline_cloud.store.failure import named

_FILE = "cloud.toml"


def add_group(groups: Any, name: str, about: str, **more: Any) -> Any:
    """Add a group of commands. `more`: arguments of `ArgumentParser`. Returns the object that `add_command` takes."""
    return groups.add_parser(name, help=about, **more).add_subparsers(title="commands", metavar="COMMAND", required=True)


def add_command(
    commands: Any, name: str, run: Run, about: str, *, as_json: bool = True, config: bool = True, **more: Any
) -> argparse.ArgumentParser:
    """Add a command with `--config` and, unless it has another way, `--json`. `more`: arguments of `ArgumentParser`.

    A command that is called `list` or `status` has `--watch` too.
    """
    parser: argparse.ArgumentParser = commands.add_parser(name, help=about, **more)
    if config:
        which = f"the settings file (default: {_FILE}, here or in /etc/fogline/cloud)"
        parser.add_argument("--config", type=Path, default=settings_folder(_FILE, "cloud") / _FILE, help=which)
    if as_json:
        parser.add_argument("--json", action="store_true", help="print JSON")
    if name in ("list", "status"):
        add_watch(parser)
    parser.set_defaults(run=named()(run))
    return parser


def device_argument(text: str) -> str:
    """Return the identifier of the device that an operator names: type of an argument."""
    try:
        return addressed_device(text, "device")
    except Poison as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def json_argument(text: str, what: str) -> Any:
    """Return JSON of the command line (RFC 8259: no NaN, no Infinity). Raises `Misconfigured`, naming `what`."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise Misconfigured(f"{what} {text!r} is not JSON: {error}") from None


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")
