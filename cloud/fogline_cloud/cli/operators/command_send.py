"""`fogline command send`."""

import argparse
import asyncio
import itertools
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fogline.address import addressed_device
from fogline.commands.command import CommandState
from fogline.errors import Misconfigured, Poison
from fogline.process.console.command_line import INTERRUPTED
from fogline.process.console.terminal import show, show_body, show_progress, tell
from fogline.process.console.times import seconds
from fogline_cloud.cli.common import add_command, json_argument
from fogline_cloud.cli.operators.command_group import add_groups, require_no_device, send_group
from fogline_cloud.cli.operators.operator_link import add_bridge, bridge_of, connected, refused
from fogline_cloud.commands.client.operator import Ask, Operator
from fogline_cloud.commands.client.verdict import CommandVerdict
from fogline_cloud.settings import CloudSettings, load

MIN_TTL_S = 1.0
_SLACK_S = 20.0  # time that `send` waits after a command's time to live, because the bridge decides the state of the command
_MEANINGS = {  # where the bridge gives no reason
    CommandState.EXPIRED: "its device was not there in time, and did nothing",
    CommandState.CANCELLED: "its device never saw it",
    CommandState.IN_DOUBT: "its device may have run it",
}


def add_send(commands: "argparse._SubParsersAction[Any]", raw: dict[str, Any]) -> None:
    """Add the subcommand."""
    send = add_command(commands, "send", run_send, "send a command and wait for the reply", as_json=False, **raw)
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
    add_bridge(send)
    send.add_argument("--output", choices=("text", "json"), default="text", help="output format")


@dataclass(slots=True)
class _Sending:
    """One command on its way. `id`: as soon as a bridge has told it."""

    ask: Ask
    id: str = ""

    def on_id(self, command_id: str, proposed: bool) -> None:  # noqa: FBT001 - a callback
        """Print the id at once: with it the command can be shown and cancelled, whatever becomes of this process."""
        self.id = command_id
        show_progress("")
        tell(self._named)
        if proposed:
            tell(f"it waits for the approval of a second operator: fogline command approve {command_id}")

    @property
    def _named(self) -> str:
        return f"command {self.id}: {self.ask.name} for {self.ask.device}"

    def on_interrupt(self) -> None:
        """Tell how the command goes on without this process."""
        if self.id:
            remedy = f"cancel it with: fogline command cancel {self.id}"
            text = f"the command goes on until its time to live is over; {remedy}"
        else:
            remedy = f"See: fogline command list --device {self.ask.device}"
            text = f"no bridge has confirmed the command. {remedy}"
        show_progress("")
        tell(f"interrupted: {text}")


def run_send(arguments: argparse.Namespace) -> int:
    """Send a command, show progress and print the reply. Return 1 unless it succeeded."""
    settings = load(arguments.config, kafka=False)
    if arguments.where is not None:
        require_no_device(arguments)
    ask = _ask(arguments)
    if arguments.where is not None:
        return send_group(arguments, ask)
    sending = _Sending(ask)
    try:
        verdict = asyncio.run(_send(arguments, settings, sending))
    except KeyboardInterrupt:
        sending.on_interrupt()
        return INTERRUPTED
    if arguments.output == "json":
        show(json.dumps({**asdict(verdict), "data": verdict.data.decode("utf-8", "replace")}))
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
    ttl_s = seconds("--ttl", arguments.ttl)
    if ttl_s < MIN_TTL_S:
        raise Misconfigured(
            f"--ttl {arguments.ttl}: a command begins only if a second of its time to live is left: at least 1s"
        )
    if arguments.newest_wins and arguments.direct:
        raise Misconfigured("--newest-wins is for a command that waits for its device: leave --direct away")
    return Ask(
        device=_device(arguments.device) if arguments.device else "",
        name=arguments.name,
        data=data,
        content_type=content_type,
        ttl_s=ttl_s,
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


async def _send(arguments: argparse.Namespace, settings: CloudSettings, sending: _Sending) -> CommandVerdict:
    ask = sending.ask
    async with connected(arguments, settings) as operator:
        watching = asyncio.create_task(_progress(ask, operator), name="progress")
        try:
            async with asyncio.timeout((ask.ttl_s or 30.0) + _SLACK_S):
                return await operator.request(ask, sending.on_id)
        except TimeoutError:
            return CommandVerdict(CommandState.IN_DOUBT, 504, provisional=True, why=f"no reply from the bridge: {operator.why}")
        except Misconfigured as error:
            raise refused(*bridge_of(arguments, settings), str(error)) from None
        except Poison as error:
            raise Misconfigured(str(error)) from None
        finally:
            watching.cancel()


async def _progress(ask: Ask, operator: Operator) -> None:
    try:
        for waited in itertools.count():
            show_progress(f"{ask.name} for {ask.device}: waiting, {waited} s of {ask.ttl_s:.0f} s {operator.why[:60]}")
            await asyncio.sleep(1)
    finally:
        show_progress("")


def _show(ask: Ask, verdict: CommandVerdict) -> None:
    line = f"{ask.name} for {ask.device}: {verdict.state}{' (provisional)' if verdict.provisional else ''} {verdict.status}"
    why = verdict.why or _MEANINGS.get(verdict.state, "")
    tell(line + (f", {why}" if why else ""))
    if verdict.data and not verdict.why:
        show_body(verdict.data)
