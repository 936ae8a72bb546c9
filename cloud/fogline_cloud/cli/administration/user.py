"""`fogline user`: the password file of operators' programs."""

import argparse
import json
import secrets
import sys
from pathlib import Path
from typing import Any

from fogline.errors import Misconfigured
from fogline.process.console.command_line import add_limit
from fogline.process.console.listing import show_rows
from fogline.process.console.terminal import show, tell
from fogline.process.files.durable_file import replace_file
from fogline.process.files.owner import become_owner
from fogline.process.files.user_file import read_text
from fogline_cloud.bridge.door.passwords import password_line, read_passwords
from fogline_cloud.cli.common import add_command, add_group
from fogline_cloud.settings import load

EXAMPLE = """\
examples:
  fogline user set alice             make a new password, note its hash in the file `bridge.users`, and print it
  fogline user set alice --stdin     take the password from the standard input
  fogline user list
  fogline user delete alice
"""


def register(groups: "argparse._SubParsersAction[Any]") -> None:
    """Add the subcommands."""
    raw: dict[str, Any] = {"epilog": EXAMPLE, "formatter_class": argparse.RawDescriptionHelpFormatter}
    commands = add_group(groups, "user", "passwords of operators' programs", description=__doc__, **raw)
    setting = add_command(commands, "set", run_set, "add a user, or change the password", **raw)
    setting.add_argument("name", help="the name of the user")
    setting.add_argument("--stdin", action="store_true", help="take the password from the first line of the standard input")
    listing = add_command(commands, "list", run_list, "list the users", **raw)
    add_limit(listing, 1000, "the first")
    deleting = add_command(commands, "delete", run_delete, "delete a user", **raw)
    deleting.add_argument("name", help="the name of the user")


def run_set(arguments: argparse.Namespace) -> int:
    """Write the user's line, and print a password that was made here."""
    password = sys.stdin.readline().rstrip("\r\n") if arguments.stdin else secrets.token_urlsafe(24)
    if not password or "\0" in password:
        raise Misconfigured("the password is empty, or holds a NUL")
    _replace(_file(arguments), arguments.name, password_line(arguments.name, password))
    if arguments.json:
        show(json.dumps({"user": arguments.name, **({} if arguments.stdin else {"password": password})}))
    elif not arguments.stdin:
        show(password)
    return 0


def run_list(arguments: argparse.Namespace) -> int:
    """Print the names of the users."""
    path = _file(arguments)
    users = list(read_passwords(str(path))) if path.exists() else []
    shown = users[: arguments.limit]
    if arguments.json:
        show(json.dumps([{"user": each} for each in shown]))
        return 0
    show_rows(("user",), [(each,) for each in shown], f"{path} has no user: fogline user set NAME", len(users) - len(shown))
    return 0


def run_delete(arguments: argparse.Namespace) -> int:
    """Delete the user's line. Return 1 if there was none."""
    found = _replace(_file(arguments), arguments.name, None)
    if arguments.json:
        show(json.dumps({"user": arguments.name, "deleted": found}))
    if not found:
        tell(f"there is no user {arguments.name}")
    return 0 if found else 1


def _file(arguments: argparse.Namespace) -> Path:
    become_owner(arguments.config.parent)
    users = load(arguments.config, kafka=False).bridge.users
    if users is None:
        raise Misconfigured(f'{arguments.config}: [bridge] has no `users`; add, for example: users = "users"')
    return Path(users)


def _replace(path: Path, name: str, line: str | None) -> bool:
    """Replace or delete a user's line. Returns True if there was one."""
    try:
        former = read_text(path, "bridge.users").splitlines() if path.exists() else []
        kept = [each for each in former if each.partition(":")[0] != name]
        replace_file(path, "".join(f"{each}\n" for each in [*kept, *([line] if line is not None else [])]).encode())
    except OSError as error:
        raise Misconfigured(f"bridge.users: cannot change {path}: {error}") from None
    return len(kept) < len(former)
