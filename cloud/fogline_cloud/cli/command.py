"""`fogline command`: send commands to devices, and show their states."""

import argparse
import asyncio
import itertools
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec

from fogline.address import addressed_device
from fogline.command import CommandState
from fogline.errors import Misconfigured, Poison
from fogline.signature import make_key
from fogline_cloud.cli.command_cancel import add_cancel, connected
from fogline_cloud.cli.command_group import add_groups, require_no_device, send_group
from fogline_cloud.cli.common import add_command, add_group, device_argument, json_argument
from fogline_cloud.cli.times import seconds
from fogline_cloud.commands.client import Ask, CommandVerdict, Operator
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

exit status of send: 0 the command succeeded, 1 it failed or is in doubt, 2 the input or the settings are wrong
exit status of cancel: 0 the device never saw the command, 1 it is too late or not decided yet, 2 as above
"""
_FACTS = ("id", "device", "gateway", "name", "state", "status", "operator", "accepted_ms", "expires_ms", "changed_ms")
_SLACK_S = 20.0  # time that `send` waits after a command's time to live, because the bridge decides the state of the command


def register(groups: "argparse._SubParsersAction[Any]") -> None:
    """Add the subcommands."""
    raw: dict[str, Any] = {"epilog": EXAMPLE, "formatter_class": argparse.RawDescriptionHelpFormatter}
    commands = add_group(groups, "command", "send commands to devices", description=__doc__, **raw)
    send = add_command(commands, "send", run_send, "send a command and wait for the reply", as_json=False, **raw)
    example = "example: fogline command list --json"
    listing = add_command(commands, "list", run_list, "list the newest state of every command", epilog=example)
    listing.add_argument("--device", type=device_argument, help="only commands for this device")
    listing.add_argument("--limit", type=int, default=50, help="number of newest commands (default: 50)")
    example = "example: fogline command show 5f0c..."
    show = add_command(commands, "show", run_show, "show one command and its reply", epilog=example)
    show.add_argument("id", help="the command's id or its first characters")
    add_cancel(commands, raw)
    key = commands.add_parser("key", help="create a key pair for signatures", epilog="example: fogline command key > key.json")
    key.set_defaults(run=run_key)
    device = send.add_argument("device", help="the device (without --where)")
    name = send.add_argument("name", help="the name of the command")
    add_groups(commands, send, device, name)
    body = send.add_mutually_exclusive_group()
    body.add_argument("--json", dest="payload", metavar="JSON", help="arguments, as application/json")
    body.add_argument("--text", help="arguments, as text/plain")
    body.add_argument("--file", type=Path, help="file with arguments, as application/octet-stream")
    send.add_argument("--ttl", default="30s", help="time to live, the wait for the device included (default: 30s)")
    send.add_argument("--direct", action="store_true", help="do not wait for an unreachable device")
    send.add_argument("--one-way", action="store_true", help="do not expect a reply")
    send.add_argument("--idempotent", action="store_true", help="the gateway may repeat the command if its outcome is unknown")
    about = "it replaces commands of the same name that still wait for the device"
    send.add_argument("--newest-wins", action="store_true", help=about)
    send.add_argument("--bridge", help="host:port of the bridge (default: bridge.listen of the settings)")
    send.add_argument("--output", choices=("text", "json"), default="text", help="output format")


def run_send(arguments: argparse.Namespace) -> int:
    """Send a command, show progress and print the reply. Return 1 unless it succeeded."""
    settings = load(arguments.config, kafka=False)
    if arguments.where is not None:
        require_no_device(arguments)
    ask = _ask(arguments)
    if arguments.where is not None:
        return send_group(arguments, ask)
    verdict = asyncio.run(_send(arguments, settings, ask))
    if arguments.output == "json":
        print(json.dumps({**asdict(verdict), "data": verdict.data.decode("utf-8", "replace")}))
    else:
        _show(ask, verdict)
    return 0 if verdict.state in (CommandState.SUCCEEDED, CommandState.ACCEPTED) else 1


def _ask(arguments: argparse.Namespace) -> Ask:
    data, content_type = b"", None
    if arguments.payload is not None:
        json_argument(arguments.payload, "--json")
        data, content_type = arguments.payload.encode(), "application/json"
    elif arguments.text is not None:
        data, content_type = arguments.text.encode(), "text/plain"
    elif arguments.file is not None:
        try:
            data, content_type = arguments.file.read_bytes(), "application/octet-stream"
        except OSError as error:
            raise Misconfigured(f"--file {arguments.file}: {error.strerror}") from None
    if arguments.newest_wins and arguments.direct:
        raise Misconfigured("--newest-wins is for a command that waits for its device: leave --direct away")
    return Ask(
        device=_device(arguments.device) if arguments.device else "",
        name=arguments.name,
        data=data,
        content_type=content_type,
        ttl_s=seconds("--ttl", arguments.ttl),
        durable=not arguments.direct,
        idempotent=arguments.idempotent,
        newest_wins=arguments.newest_wins,
        reply=not arguments.one_way,
    )


def _device(text: str) -> str:
    try:
        return addressed_device(text, "device")
    except Poison as error:
        raise Misconfigured(str(error)) from None


async def _send(arguments: argparse.Namespace, settings: CloudSettings, ask: Ask) -> CommandVerdict:
    async with connected(arguments, settings) as operator:
        watching = asyncio.create_task(_progress(ask, operator), name="progress")
        try:
            async with asyncio.timeout((ask.ttl_s or 30.0) + _SLACK_S):
                return await operator.request(ask)
        except TimeoutError:
            return CommandVerdict(CommandState.IN_DOUBT, 504, provisional=True, why=f"no reply from the bridge: {operator.why}")
        except Poison as error:
            raise Misconfigured(str(error)) from None
        finally:
            watching.cancel()


async def _progress(ask: Ask, operator: Operator) -> None:
    if not sys.stderr.isatty():
        return
    try:
        for waited in itertools.count():
            sys.stderr.write(
                f"\r{ask.name} for {ask.device}: waiting, {waited} s of {ask.ttl_s:.0f} s {operator.why[:60]}\033[K"
            )
            sys.stderr.flush()
            await asyncio.sleep(1)
    finally:
        sys.stderr.write("\r\033[K")
        sys.stderr.flush()


def _show(ask: Ask, verdict: CommandVerdict) -> None:
    line = f"{ask.name} for {ask.device}: {verdict.state}{' (provisional)' if verdict.provisional else ''} {verdict.status}"
    sys.stderr.write(line + (f", {verdict.why}" if verdict.why else "") + "\n")
    if verdict.data and not verdict.why:
        sys.stdout.write(verdict.data.decode("utf-8", "replace") + "\n")


def _records(settings: CloudSettings) -> list[CommandRecord]:
    clients = KafkaClients(settings.kafka)
    clients.topics()
    found = [record for shard in range(settings.shards) for record in read_commands(clients, settings.tenant, shard)]
    return sorted(found, key=lambda each: each.accepted_ms)


def run_list(arguments: argparse.Namespace) -> int:
    """Print the newest commands."""
    newest = [each for each in _records(load(arguments.config)) if arguments.device in (None, each.device)][-arguments.limit :]
    if arguments.json:
        print(json.dumps([_facts(each) for each in newest]))
        return 0
    for each in newest:
        print(f"{each.id:32}  {each.device:20} {each.name:20} {_state(each):24} {each.status or '-'}")
    return 0


def run_show(arguments: argparse.Namespace) -> int:
    """Print one command. Return 1 unless exactly one matches."""
    found = [each for each in _records(load(arguments.config)) if each.id.startswith(arguments.id)]
    if len(found) != 1:
        sys.stderr.write(f"{len(found) or 'no'} commands begin with {arguments.id}\n")
        return 1
    facts = {**_facts(found[0]), "answer": found[0].reply_body.decode("utf-8", "replace"), "why": found[0].why}
    if arguments.json:
        print(json.dumps(facts))
    else:
        for name, value in facts.items():
            print(f"{name:12} {value}")
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
    print(json.dumps(pair))
    return 0
