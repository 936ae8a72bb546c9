"""`fogline device`: the registry of devices."""

import argparse
import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec

from fogline.address import DeviceAddress
from fogline.amqp.outcome import DeliveryState, Outcome
from fogline.errors import Misconfigured, Poison
from fogline.process.command_line import add_limit
from fogline.process.listing import show_facts, show_rows, utc
from fogline.process.settings_file import load_toml
from fogline.process.terminal import show, tell
from fogline_cloud.cli.common import add_command, add_group, device_argument, json_argument
from fogline_cloud.cli.operator_link import add_bridge, bridge_of, refused
from fogline_cloud.commands.operator_security import operator_security
from fogline_cloud.devices.client import edit_device
from fogline_cloud.devices.desired import DEFAULT_COMMAND, difference
from fogline_cloud.devices.device_filter import read_filter
from fogline_cloud.devices.device_table import DeviceEntry
from fogline_cloud.devices.edits import FORGET, SET, WANT, DeviceEdit, check_edit
from fogline_cloud.devices.read_devices import read_devices
from fogline_cloud.devices.types_file import read_commands_table
from fogline_cloud.kafka import KafkaClients
from fogline_cloud.settings import load

EXAMPLE = """\
examples:
  fogline device set lamp-1 --type lamp --tag site=berlin --tag floor=2
  fogline device set lamp-1 --commands lamp.toml      the commands that it takes, with JSON Schemas
  fogline device list --where type=lamp,site=berlin   * and ? are wildcards: site=b*
  fogline device want lamp-1 '{"on": true}' --command switch
  fogline device show lamp-1 --json                   desired and reported state too
  fogline device forget lamp-1

exit status: 0 done, 1 no such device, or the bridge refuses the change, 2 the input or the settings are wrong, 130 Ctrl-C
"""


def register(groups: "argparse._SubParsersAction[Any]") -> None:
    """Add the subcommands."""
    raw: dict[str, Any] = {"epilog": EXAMPLE, "formatter_class": argparse.RawDescriptionHelpFormatter}
    commands = add_group(groups, "device", "list and change the registry of devices", description=__doc__, **raw)
    listing = add_command(commands, "list", run_list, "print the devices (from Kafka)", **raw)
    listing.add_argument("--where", action="append", default=[], metavar="NAME=VALUE,...", help="only devices that match")
    add_limit(listing, 1000, "the first by name")
    show = add_command(commands, "show", run_show, "print one device (from Kafka)", **raw)
    setting = add_command(commands, "set", run_set, "add or change a device", **raw)
    setting.add_argument("--type", help='the type of the device; "" removes it')
    setting.add_argument("--tag", action="append", default=[], metavar="NAME=VALUE", help="a tag; NAME= removes it")
    about = "TOML file with a table for each command: the JSON Schema of its arguments; none: any command"
    setting.add_argument("--commands", metavar="FILE", help=about)
    forget = add_command(commands, "forget", run_forget, "remove a device from the registry; its events stay", **raw)
    want = add_command(commands, "want", run_want, "set the desired state; it is sent when the device is there", **raw)
    for each in (show, setting, want, forget):
        each.add_argument("device", type=device_argument, help="the device")
    want.add_argument("desired", metavar="JSON", help="the desired state, an object")
    about = f"the command that carries the state (default: {DEFAULT_COMMAND})"
    want.add_argument("--command", default=DEFAULT_COMMAND, help=about)
    for each in (setting, want, forget):
        add_bridge(each)


def run_list(arguments: argparse.Namespace) -> int:
    """Print the devices that match."""
    try:
        selection = read_filter(arguments.where)
    except Poison as error:
        raise Misconfigured(f"--{error}") from None
    settings = load(arguments.config)
    found = read_devices(KafkaClients(settings.kafka), settings.tenant, settings.shards)
    matching = sorted((each for each in found if selection.matches(each)), key=lambda each: each.name)
    shown = matching[: arguments.limit]
    if arguments.json:
        show(json.dumps([facts(each) for each in shown]))
        return 0
    rows = [(each.name, each.type or "-", (each.gateways or ["-"])[0], _time(each.seen_ms), _tags(each)) for each in shown]
    empty = "no device matches" if arguments.where else "no device is in the registry (docs/devices.md)"
    show_rows(("device", "type", "gateway", "last seen", "tags"), rows, empty, len(matching) - len(shown))
    return 0


def _tags(device: DeviceEntry) -> str:
    return ",".join(f"{name}={value}" for name, value in device.tags.items())


def run_show(arguments: argparse.Namespace) -> int:
    """Print one device. Return 1 if it is not in the registry."""
    settings = load(arguments.config)
    device = read_devices(KafkaClients(settings.kafka), settings.tenant, settings.shards).get(arguments.device)
    if device is None:
        tell(f"device {arguments.device!a} is not in the registry")
        return 1
    found = facts(device)
    if arguments.json:
        show(json.dumps(found))
    else:
        show_facts(found)
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
    host, port = bridge_of(arguments, settings)
    security = operator_security(settings.operator, host)
    address = DeviceAddress(settings.tenant, arguments.device)
    try:
        outcome = asyncio.run(edit_device(f"{host}:{port}", address, action, body, security=security))
    except Misconfigured as error:
        raise refused(host, port, str(error)) from None
    return _report(arguments, outcome)


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


def facts(device: DeviceEntry) -> dict[str, Any]:
    """Return what is known of a device, as JSON."""
    record = device.record
    return {
        "device": device.name,
        "type": device.type,
        "tags": device.tags,
        "gateways": device.gateways,
        "last_seen": _time(device.seen_ms) if device.seen_ms is not None else None,
        "firmware": device.firmware,
        "commands": msgspec.json.decode(record.commands) if record is not None and record.commands else None,
        "version": record.version if record is not None else 0,
        "changed": _time(record.changed_ms) if record is not None else None,
        "changed_by": record.changed_by if record is not None else "",
        **desired_facts(device),
    }


def desired_facts(device: DeviceEntry) -> dict[str, Any]:
    """Return the desired state, the reported one beside it, and the difference, as JSON."""
    desired, outcome, reported = device.desired, device.outcome, device.reported
    if desired is None:
        return {"reported": reported.reported} if reported is not None else {}
    return {
        "desired": desired.desired,
        "desired_version": desired.version,
        "desired_state": device.desired_state,
        "desired_command_id": desired.sent_id,
        "desired_why": outcome.why if outcome is not None else "",
        "reported": reported.reported if reported is not None else None,
        "difference": difference(desired.desired, reported.reported if reported is not None else None),
    }


def _tag(text: str) -> tuple[str, str | None]:
    name, equals, value = text.partition("=")
    if not equals:
        raise Misconfigured(f"--tag {text!r}: expected name=value, for example --tag site=berlin")
    return name, value or None


def _time(ms: int | None) -> str:
    return utc(None if ms is None else ms / 1000)
