"""`fogline command`: have devices do things, and see what became of it."""

import argparse
import asyncio
import json
import re
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fogline.command import State
from fogline.errors import Misconfigured, Poison
from fogline.settings import split_endpoint
from fogline.signature import make_key
from fogline_cloud.bridge.recovery import read_commands
from fogline_cloud.cli.common import with_config, with_json
from fogline_cloud.commands.client import Ask, Operator, Verdict
from fogline_cloud.commands.record import Record
from fogline_cloud.kafka import KafkaClients
from fogline_cloud.settings import Settings, load

EXAMPLE = """\
examples:
  fogline command send lamp-1 switch --json '{"on": true}' --ttl 30s
  fogline command send lamp-1 reboot --direct          now, or not at all
  fogline command list --device lamp-1                 the newest state of each command
  fogline command show 5f0c...                         one command, and the device's answer

exit status of send: 0 the device did it, 1 it did not (or it is in doubt), 2 something has to be changed first
"""
_UNITS = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_CONNECT_S = 10.0
_SLACK_S = 20.0
"""How much longer than a command's time to live its answer is waited for: the bridge decides, not this program."""


def register(groups: "argparse._SubParsersAction[Any]") -> None:
    """Add the subcommands."""
    parser = groups.add_parser(
        "command",
        help="send commands to devices",
        description=__doc__,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _register_send(commands)
    listing = commands.add_parser(
        "list", help="the newest state of every command", epilog="example: fogline command list --json"
    )
    listing.add_argument("--device", help="only this device's")
    listing.add_argument("--limit", type=int, default=50, help="how many, the newest (default: 50)")
    show = commands.add_parser("show", help="one command and its answer", epilog="example: fogline command show 5f0c...")
    show.add_argument("id", help="the command's id, or the beginning of it")
    key = commands.add_parser("key", help="make a pair of keys for signing", epilog="example: fogline command key > key.json")
    key.set_defaults(run=run_key)
    for each, run in ((listing, run_list), (show, run_show)):
        with_config(each)
        with_json(each)
        each.set_defaults(run=run)


def _register_send(commands: "argparse._SubParsersAction[Any]") -> None:
    send = commands.add_parser(
        "send", help="send one and wait for the answer", epilog=EXAMPLE, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    send.add_argument("device", help="the device")
    send.add_argument("name", help="the command, as the device knows it")
    body = send.add_mutually_exclusive_group()
    body.add_argument("--json", dest="payload", metavar="JSON", help="arguments, as application/json")
    body.add_argument("--text", help="arguments, as text/plain")
    body.add_argument("--file", type=Path, help="arguments, from a file, as application/octet-stream")
    send.add_argument("--ttl", default="30s", help="how long it may take, the wait for the device included (default: 30s)")
    send.add_argument("--direct", action="store_true", help="do not wait for a device that is away")
    send.add_argument("--one-way", action="store_true", help="want no answer of the device")
    send.add_argument("--idempotent", action="store_true", help="may be run again if it is in doubt whether it was")
    send.add_argument("--bridge", help="host:port of the bridge (default: bridge.listen of the settings)")
    send.add_argument("--output", choices=("text", "json"), default="text", help="how the answer is printed")
    with_config(send)
    send.set_defaults(run=run_send)


def run_send(arguments: argparse.Namespace) -> int:
    """Send, show progress, print the answer; status 1 unless it succeeded."""
    settings = load(arguments.config)
    ask = _ask(arguments)
    verdict = asyncio.run(_send(arguments, settings, ask))
    if arguments.output == "json":
        print(json.dumps({**asdict(verdict), "data": verdict.data.decode("utf-8", "replace")}))
    else:
        _show(ask, verdict)
    return 0 if verdict.state in (State.SUCCEEDED, State.ACCEPTED) else 1


def _ask(arguments: argparse.Namespace) -> Ask:
    data, content_type = b"", None
    if arguments.payload is not None:
        try:
            json.loads(arguments.payload)
        except ValueError as error:
            raise Misconfigured(f"--json {arguments.payload!r} is not JSON: {error}") from None
        data, content_type = arguments.payload.encode(), "application/json"
    elif arguments.text is not None:
        data, content_type = arguments.text.encode(), "text/plain"
    elif arguments.file is not None:
        try:
            data, content_type = arguments.file.read_bytes(), "application/octet-stream"
        except OSError as error:
            raise Misconfigured(f"--file {arguments.file}: {error.strerror}") from None
    return Ask(
        device=arguments.device,
        name=arguments.name,
        data=data,
        content_type=content_type,
        ttl_s=seconds(arguments.ttl),
        durable=not arguments.direct,
        idempotent=arguments.idempotent,
        reply=not arguments.one_way,
    )


def seconds(text: str) -> float:
    """`500ms`, `30s`, `5m`, `2h`, `1d`. Raises `Misconfigured`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|)", text)
    if match is None or float(match[1]) <= 0:
        raise Misconfigured(f"--ttl {text!r}: expected a time like 30s, 5m or 2h")
    return float(match[1]) * _UNITS[match[2]]


async def _send(arguments: argparse.Namespace, settings: Settings, ask: Ask) -> Verdict:
    where = arguments.bridge or settings.bridge.listen
    host, port = split_endpoint(where, "--bridge" if arguments.bridge else "bridge.listen")
    async with Operator(host, port, settings.tenant) as operator:
        try:
            async with asyncio.timeout(_CONNECT_S):
                await operator.attached()
        except TimeoutError:
            raise Misconfigured(f"no bridge answers at {where}: {operator.why or 'nobody is there'}") from None
        watching = asyncio.create_task(_progress(ask, operator), name="progress")
        try:
            async with asyncio.timeout((ask.ttl_s or 30.0) + _SLACK_S):
                return await operator.request(ask)
        except TimeoutError:
            return Verdict(State.IN_DOUBT, 504, provisional=True, why=f"no word from the bridge at {where}: {operator.why}")
        except Poison as error:
            raise Misconfigured(str(error)) from None
        finally:
            watching.cancel()


async def _progress(ask: Ask, operator: Operator) -> None:
    """A line that grows older, if a person watches."""
    if not sys.stderr.isatty():
        return
    waited = 0
    try:
        while True:
            sys.stderr.write(
                f"\r{ask.name} for {ask.device}: waiting, {waited} s of {ask.ttl_s:.0f} s {operator.why[:60]}\033[K"
            )
            sys.stderr.flush()
            await asyncio.sleep(1)
            waited += 1
    finally:
        sys.stderr.write("\r\033[K")
        sys.stderr.flush()


def _show(ask: Ask, verdict: Verdict) -> None:
    words = f"{ask.name} for {ask.device}: {verdict.state}{' (provisional)' if verdict.provisional else ''} {verdict.status}"
    sys.stderr.write(words + (f", {verdict.why}" if verdict.why else "") + "\n")
    if verdict.data and not verdict.why:
        sys.stdout.write(verdict.data.decode("utf-8", "replace") + "\n")


def _records(settings: Settings) -> list[Record]:
    clients = KafkaClients(settings.kafka)
    clients.topics()
    found = [record for shard in range(settings.shards) for record in read_commands(clients, settings.tenant, shard)]
    return sorted(found, key=lambda each: each.accepted_ms)


def run_list(arguments: argparse.Namespace) -> int:
    """Print the newest commands."""
    found = [each for each in _records(load(arguments.config)) if arguments.device in (None, each.device)]
    newest = found[-arguments.limit :]
    if arguments.json:
        print(json.dumps([_facts(each) for each in newest]))
        return 0
    for each in newest:
        print(f"{each.id:32}  {each.device:20} {each.name:20} {_state(each):24} {each.status or '-'}")
    return 0


def run_show(arguments: argparse.Namespace) -> int:
    """Print one command; status 1 if there is none."""
    found = [each for each in _records(load(arguments.config)) if each.id.startswith(arguments.id)]
    if len(found) != 1:
        sys.stderr.write(f"{len(found) or 'no'} commands begin with {arguments.id}\n")
        return 1
    facts = {**_facts(found[0]), "answer": found[0].answer.decode("utf-8", "replace"), "why": found[0].why}
    if arguments.json:
        print(json.dumps(facts))
    else:
        for name, value in facts.items():
            print(f"{name:12} {value}")
    return 0


def _state(record: Record) -> str:
    return f"{record.state} (provisional)" if record.provisional else record.state.value


def _facts(record: Record) -> dict[str, Any]:
    return {
        "id": record.id,
        "device": record.device,
        "gateway": record.gateway,
        "name": record.name,
        "state": _state(record),
        "status": record.status,
        "operator": record.operator,
        "accepted_ms": record.accepted_ms,
        "expires_ms": record.expires_ms,
        "changed_ms": record.changed_ms,
    }


def run_key(arguments: argparse.Namespace) -> int:  # noqa: ARG001 - it takes none
    """Print a new pair."""
    private, public = make_key()
    print(
        json.dumps(
            {"private (a file, commands.signing_key of the cloud)": private, "public (commands.keys of gateways)": public}
        )
    )
    return 0
