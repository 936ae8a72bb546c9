"""`fogline command`: send commands to devices, and show their states."""

import argparse
import base64
import json
from datetime import UTC, datetime
from typing import Any

from fogline.commands.command import CommandState
from fogline.commands.signature import make_key
from fogline.process.console.command_line import add_limit
from fogline.process.console.listing import show_facts, show_rows, utc
from fogline.process.console.terminal import show, tell
from fogline.process.console.times import moment
from fogline_cloud.cli.common import add_command, add_group, device_argument
from fogline_cloud.cli.operators.command_approve import add_approve
from fogline_cloud.cli.operators.command_cancel import add_cancel
from fogline_cloud.cli.operators.command_send import add_send
from fogline_cloud.cli.operators.operator_link import add_bridge, command_of, commands_of
from fogline_cloud.listing import MAX_COMMANDS, CommandQuery
from fogline_cloud.settings import load

EXAMPLE = """\
examples:
  fogline command send lamp-1 switch --json '{"on": true}' --ttl 30s
  fogline command send lamp-1 reboot --direct          only if the device is reachable now
  fogline command send --where type=lamp switch --json '{"on": true}' --stop-at-failures 10%
  fogline command list --device lamp-1                 the newest state of each command
  fogline command show 5f0c...                         one command and its reply
  fogline command cancel 5f0c...                       unless the device has seen it
  fogline command approve 5f0c...                      one of another operator that takes two

exit status of send: 0 the command succeeded, 1 it failed or is in doubt, 2 the input or the settings are wrong, 130 Ctrl-C
exit status of cancel: 0 the device never saw the command, 1 it is too late or not decided yet, 2 and 130 as above
"""


def register(groups: "argparse._SubParsersAction[Any]") -> None:
    """Add the subcommands."""
    raw: dict[str, Any] = {"epilog": EXAMPLE, "formatter_class": argparse.RawDescriptionHelpFormatter}
    commands = add_group(groups, "command", "send commands to devices", description=__doc__, **raw)
    add_send(commands, raw)
    example = "example: fogline command list --json"
    listing = add_command(commands, "list", run_list, "list the newest state of every command", epilog=example)
    listing.add_argument("--device", type=device_argument, help="only commands for this device")
    states = [each.value for each in CommandState]
    listing.add_argument("--state", type=str.upper, choices=states, help="only commands in this state")
    listing.add_argument("--since", metavar="TIME", help="only commands accepted since then: 2h, 7d, or a date")
    add_limit(listing, 50, "the newest", MAX_COMMANDS)
    add_bridge(listing)
    example = "example: fogline command show 5f0c..."
    show = add_command(commands, "show", run_show, "show one command and its reply", epilog=example)
    show.add_argument("id", help="the command's id or its first characters")
    add_bridge(show)
    add_cancel(commands, raw)
    add_approve(commands, raw)
    key = commands.add_parser("key", help="create a key pair for signatures", epilog="example: fogline command key > key.json")
    key.set_defaults(run=run_key)


def run_list(arguments: argparse.Namespace) -> int:
    """Print the newest commands, the newest one last."""
    since_ms = 0
    if arguments.since is not None:
        since_ms = int(moment("--since", arguments.since, datetime.now(UTC)).timestamp() * 1000)
    query = CommandQuery(state=arguments.state or "", since_ms=max(0, since_ms), limit=arguments.limit)
    found = commands_of(arguments, load(arguments.config, kafka=False), query, arguments.device or "")
    oldest_first = found.records[::-1]
    if arguments.json:
        show(json.dumps(oldest_first))
        return 0
    about = (("for device", arguments.device), ("in state", arguments.state))
    empty = " ".join(["there is no command", *(f"{words} {value}" for words, value in about if value)])
    columns = ("id", "accepted", "device", "name", "state", "status")
    rows = [
        (each["id"], utc(each["accepted_ms"] / 1000), each["device"], each["name"], each["state"], each["status"])
        for each in oldest_first
    ]
    show_rows(columns, rows, empty)
    if found.more:
        tell("older commands match too: see --limit and --since")
    return 0


def run_show(arguments: argparse.Namespace) -> int:
    """Print one command. Return 1 unless exactly one matches."""
    found, why = command_of(arguments, load(arguments.config, kafka=False), arguments.id)
    if not found:
        tell(why)
        return 1
    facts = {name: value for name, value in found.items() if not name.startswith("answer")}
    facts["answer"] = base64.b64decode(found["answer_base64"]).decode("utf-8", "replace")
    if arguments.json:
        show(json.dumps(facts))
    else:
        show_facts(facts)
    return 0


def run_key(arguments: argparse.Namespace) -> int:  # noqa: ARG001 - the signature of every subcommand
    """Print a new key pair."""
    private, public = make_key()
    pair = {"private (a file, commands.signing_key of the cloud)": private, "public (commands.keys of gateways)": public}
    show(json.dumps(pair))
    return 0
