"""`fogline command`: send commands to devices, and show their states."""

import argparse
import json
from typing import Any

import msgspec

from fogline.command import CommandState
from fogline.process.command_line import add_limit
from fogline.process.listing import show_facts, show_rows, utc
from fogline.process.terminal import show, tell
from fogline.signature import make_key
from fogline_cloud.cli.command_cancel import add_cancel
from fogline_cloud.cli.command_send import add_send
from fogline_cloud.cli.common import add_command, add_group, device_argument
from fogline_cloud.commands.record import CommandRecord
from fogline_cloud.kafka import KafkaClients
from fogline_cloud.settings import CloudSettings, load
from fogline_cloud.shard.recovery import read_commands

EXAMPLE = """\
examples:
  fogline command send lamp-1 switch --json '{"on": true}' --ttl 30s
  fogline command send lamp-1 reboot --direct          only if the device is reachable now
  fogline command send --where type=lamp switch --json '{"on": true}' --stop-at-failures 10%
  fogline command list --device lamp-1                 the newest state of each command
  fogline command show 5f0c...                         one command and its reply
  fogline command cancel 5f0c...                       unless the device has seen it

exit status of send: 0 the command succeeded, 1 it failed or is in doubt, 2 the input or the settings are wrong, 130 Ctrl-C
exit status of cancel: 0 the device never saw the command, 1 it is too late or not decided yet, 2 and 130 as above
"""
_FACTS = ("id", "device", "gateway", "name", "state", "status", "operator", "accepted_ms", "expires_ms", "changed_ms")


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
    add_limit(listing, 50, "the newest")
    example = "example: fogline command show 5f0c..."
    show = add_command(commands, "show", run_show, "show one command and its reply", epilog=example)
    show.add_argument("id", help="the command's id or its first characters")
    add_cancel(commands, raw)
    key = commands.add_parser("key", help="create a key pair for signatures", epilog="example: fogline command key > key.json")
    key.set_defaults(run=run_key)


def _records(settings: CloudSettings) -> list[CommandRecord]:
    clients = KafkaClients(settings.kafka)
    clients.topics()
    found = [record for shard in range(settings.shards) for record in read_commands(clients, settings.tenant, shard)]
    return sorted(found, key=lambda each: each.accepted_ms)


def run_list(arguments: argparse.Namespace) -> int:
    """Print the newest commands."""
    found = [each for each in _records(load(arguments.config)) if arguments.device in (None, each.device)]
    matching = [each for each in found if arguments.state in (None, each.state.value)]
    newest = matching[-arguments.limit :]
    if arguments.json:
        show(json.dumps([_facts(each) for each in newest]))
        return 0
    about = (("for device", arguments.device), ("in state", arguments.state))
    empty = " ".join(["there is no command", *(f"{words} {value}" for words, value in about if value)])
    rows = [(each.id, utc(each.accepted_ms / 1000), each.device, each.name, _state(each), each.status) for each in newest]
    show_rows(("id", "accepted", "device", "name", "state", "status"), rows, empty, len(matching) - len(newest))
    return 0


def run_show(arguments: argparse.Namespace) -> int:
    """Print one command. Return 1 unless exactly one matches."""
    found = [each for each in _records(load(arguments.config)) if each.id.startswith(arguments.id)]
    if len(found) != 1:
        tell(f"{len(found) or 'no'} commands begin with {arguments.id}")
        return 1
    facts = {**_facts(found[0]), "answer": found[0].reply_body.decode("utf-8", "replace"), "why": found[0].why}
    if arguments.json:
        show(json.dumps(facts))
    else:
        show_facts(facts)
    return 0


def _state(record: CommandRecord) -> str:
    return f"{record.state} (provisional)" if record.provisional else record.state.value


def _facts(record: CommandRecord) -> dict[str, Any]:
    found = {**msgspec.structs.asdict(record), "state": _state(record)}
    return {name: found[name] for name in _FACTS}


def run_key(arguments: argparse.Namespace) -> int:  # noqa: ARG001 - the signature of every subcommand
    """Print a new key pair."""
    private, public = make_key()
    pair = {"private (a file, commands.signing_key of the cloud)": private, "public (commands.keys of gateways)": public}
    show(json.dumps(pair))
    return 0
