"""`fogline command cancel`."""

import argparse
import asyncio
import json
from typing import Any

from fogline.commands.command import CommandState, Status
from fogline.process.console.terminal import show, tell
from fogline.process.console.times import seconds
from fogline_cloud.cli.common import add_command
from fogline_cloud.cli.operators.operator_link import add_bridge, connected, whole_id
from fogline_cloud.commands.client.verdict import CancelVerdict
from fogline_cloud.settings import CloudSettings, load


def add_cancel(commands: "argparse._SubParsersAction[Any]", raw: dict[str, Any]) -> None:
    """Add the subcommand."""
    cancel = add_command(commands, "cancel", run_cancel, "cancel a command that its device has not seen", **raw)
    cancel.add_argument("id", help="the command's id or its first characters")
    cancel.add_argument("--wait", default="30s", help="time to wait for the verdict (default: 30s)")
    add_bridge(cancel)


def run_cancel(arguments: argparse.Namespace) -> int:
    """Cancel a command and print the verdict. Return 1 unless the device never saw it."""
    settings, wait_s = load(arguments.config, kafka=False), seconds("--wait", arguments.wait)
    command_id, why = whole_id(arguments, settings)
    if why:
        verdict = CancelVerdict(None, int(Status.UNKNOWN_DEVICE), why)
    else:
        verdict = asyncio.run(_cancel(arguments, settings, command_id, wait_s))
    if arguments.json:
        show(json.dumps({"id": command_id, "state": verdict.state, "status": verdict.status, "why": verdict.why}))
    else:
        tell(f"{command_id}: {_sentence(verdict)}")
    return 0 if verdict.state is CommandState.CANCELLED else 1


async def _cancel(arguments: argparse.Namespace, settings: CloudSettings, command_id: str, wait_s: float) -> CancelVerdict:
    async with connected(arguments, settings) as operator:
        try:
            async with asyncio.timeout(wait_s):
                return await operator.cancel(command_id)
        except TimeoutError:
            why = "its gateway is away, or its device is about to run it. Ask again, or see: fogline command show"
            return CancelVerdict(CommandState.CANCELLING, 202, f"not decided yet: {why}")


def _sentence(verdict: CancelVerdict) -> str:
    if verdict.state is CommandState.CANCELLED:
        return "CANCELLED, its device never saw it"
    return f"{verdict.status}, {verdict.why}"
