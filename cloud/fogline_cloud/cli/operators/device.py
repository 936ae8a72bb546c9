"""`fogline device`: the registry of devices."""

import argparse
import json
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from fogline.amqp.outcome import DeliveryState, Outcome
from fogline.errors import Misconfigured, Poison
from fogline.process.console.command_line import add_limit
from fogline.process.console.listing import show_facts, show_rows
from fogline.process.console.terminal import show, tell
from fogline.process.console.times import seconds
from fogline.process.files.settings_file import load_toml
from fogline_cloud.cli.common import add_command, add_group, device_argument, json_argument
from fogline_cloud.cli.operators.device_credentials import add_credentials
from fogline_cloud.cli.operators.device_history import add_history
from fogline_cloud.cli.operators.operator_link import add_bridge, devices_of, edit_at_bridge
from fogline_cloud.devices.desired import DEFAULT_COMMAND
from fogline_cloud.devices.device_table import MAX_DEVICES
from fogline_cloud.devices.edits import FORGET, SET, WANT, DeviceEdit, check_edit
from fogline_cloud.devices.types_file import read_commands_table
from fogline_cloud.settings import load

EXAMPLE = """\
examples:
  fogline device set lamp-1 --type lamp --tag site=berlin --tag floor=2
  fogline device set lamp-1 --commands lamp.toml      the commands that it takes, with JSON Schemas
  fogline device list --where type=lamp,site=berlin   * and ? are wildcards: site=b*
  fogline device list --silent 1h                     without an event for an hour, or for ever
  fogline device want lamp-1 '{"on": true}' --command switch
  fogline device show lamp-1 --json                   desired and reported state too
  fogline device history press-1 --since 2h           events that rules kept back at the gateway
  fogline device credentials add lamp-1 --kind psk     a key for DTLS or OSCORE
  fogline device forget lamp-1

exit status: 0 done, 1 no such device, no history, or the bridge refuses, 2 the input or the settings are wrong, 130 Ctrl-C
"""


def register(groups: "argparse._SubParsersAction[Any]") -> None:
    """Add the subcommands."""
    raw: dict[str, Any] = {"epilog": EXAMPLE, "formatter_class": argparse.RawDescriptionHelpFormatter}
    commands = add_group(groups, "device", "list and change the registry of devices", description=__doc__, **raw)
    listing = add_command(commands, "list", run_list, "print the devices", **raw)
    listing.add_argument("--where", action="append", default=[], metavar="NAME=VALUE,...", help="only devices that match")
    about = "only devices without an event for so long, such as 1h, or for ever; to the precision of devices.seen_every_s"
    listing.add_argument("--silent", metavar="TIME", help=about)
    add_limit(listing, 1000, "the first by name", MAX_DEVICES)
    show = add_command(commands, "show", run_show, "print one device", **raw)
    setting = add_command(commands, "set", run_set, "add or change a device", **raw)
    setting.add_argument("--type", help='the type of the device; "" removes it')
    setting.add_argument("--tag", action="append", default=[], metavar="NAME=VALUE", help="a tag; NAME= removes it")
    about = "TOML file with a table for each command: the JSON Schema of its arguments; none: any command"
    setting.add_argument("--commands", metavar="FILE", help=about)
    forget = add_command(commands, "forget", run_forget, "remove a device from the registry; its events stay", **raw)
    want = add_command(commands, "want", run_want, "set the desired state; it is sent when the device is there", **raw)
    history = add_history(commands, raw)
    add_credentials(commands)
    for each in (show, setting, want, forget, history):
        each.add_argument("device", type=device_argument, help="the device")
    want.add_argument("desired", metavar="JSON", help="the desired state, an object")
    about = f"the command that carries the state (default: {DEFAULT_COMMAND})"
    want.add_argument("--command", default=DEFAULT_COMMAND, help=about)
    for each in (listing, show, setting, want, forget, history):
        add_bridge(each)


def run_list(arguments: argparse.Namespace) -> int:
    """Print the devices that match."""
    settings = load(arguments.config, kafka=False)
    if arguments.silent is None:
        found = devices_of(arguments, settings, where=arguments.where, limit=arguments.limit)
        records, more = found.records, found.more
    else:
        before_s = time.time() - seconds("--silent", arguments.silent)
        every = devices_of(arguments, settings, where=arguments.where, limit=MAX_DEVICES).records
        records = [each for each in every if each["last_seen"] is None or _moment_s(each["last_seen"]) < before_s]
        records, more = records[: arguments.limit], max(0, len(records) - arguments.limit)
    if arguments.json:
        show(json.dumps(records))
        return 0
    rows = [
        (each["device"], each["type"] or "-", (each["gateways"] or ["-"])[0], each["last_seen"], _tags(each["tags"]))
        for each in records
    ]
    empty = (
        "no device matches" if arguments.where or arguments.silent else "no device is in the registry (docs/device-registry.md)"
    )
    show_rows(("device", "type", "gateway", "last seen", "tags"), rows, empty, more)
    return 0


def _moment_s(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _tags(tags: dict[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in tags.items())


def run_show(arguments: argparse.Namespace) -> int:
    """Print one device. Return 1 if it is not in the registry."""
    found = devices_of(arguments, load(arguments.config, kafka=False), arguments.device).records
    if not found:
        tell(f"device {arguments.device!a} is not in the registry")
        return 1
    if arguments.json:
        show(json.dumps(found[0]))
    else:
        show_facts(found[0])
    return 0


def run_set(arguments: argparse.Namespace) -> int:
    """Add or change a device. Return 1 if the bridge refuses."""
    body: dict[str, Any] = {}
    if arguments.type is not None:
        body["type"] = arguments.type or None
    if arguments.tag:
        body["tags"] = dict(map(_tag, arguments.tag))
    if arguments.commands == "none":
        body["commands"] = None
    elif arguments.commands is not None:
        text = read_commands_table(arguments.commands, load_toml(Path(arguments.commands), "--commands"), "the file")
        body["commands"] = msgspec.json.decode(text)
    return _edit(arguments, SET, json.dumps(body).encode())


def run_want(arguments: argparse.Namespace) -> int:
    """Set the desired state of a device. Return 1 if the bridge refuses."""
    desired = json_argument(arguments.desired, "the desired state")
    return _edit(arguments, WANT, json.dumps({"desired": desired, "command": arguments.command}).encode())


def run_forget(arguments: argparse.Namespace) -> int:
    """Remove a device. Return 1 if the bridge refuses."""
    return _edit(arguments, FORGET, b"")


def _edit(arguments: argparse.Namespace, action: str, body: bytes) -> int:
    settings = load(arguments.config, kafka=False)
    try:
        check_edit(DeviceEdit(arguments.device, action, "", body))
    except Poison as error:
        raise Misconfigured(str(error)) from None
    return _report(arguments, edit_at_bridge(arguments, settings, action, body))


def _report(arguments: argparse.Namespace, outcome: Outcome) -> int:
    done = outcome.state is DeliveryState.ACCEPTED
    why = outcome.description or outcome.condition
    if arguments.json:
        show(json.dumps({"device": arguments.device, "ok": done, "why": why}))
    elif done:
        tell(f"device {arguments.device}: done")
    else:
        tell(f"{why}")
    return 0 if done else 1


def _tag(text: str) -> tuple[str, str | None]:
    name, equals, value = text.partition("=")
    if not equals:
        raise Misconfigured(f"--tag {text!r}: expected name=value, for example --tag site=berlin")
    return name, value or None
