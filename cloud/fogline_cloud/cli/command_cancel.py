"""`fogline command cancel`, and the operator's connection of `fogline command`."""

import argparse
import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fogline.command import CommandState
from fogline.errors import Misconfigured
from fogline.process.settings_file import split_endpoint
from fogline.process.terminal import show, tell
from fogline_cloud.cli.common import add_command
from fogline_cloud.cli.times import seconds
from fogline_cloud.commands.client import CancelVerdict, Operator
from fogline_cloud.commands.operator_security import operator_security
from fogline_cloud.settings import CloudSettings, load

_CONNECT_S = 10.0


def add_cancel(commands: "argparse._SubParsersAction[Any]", raw: dict[str, Any]) -> None:
    """Add the subcommand."""
    cancel = add_command(commands, "cancel", run_cancel, "cancel a command that its device has not seen", as_json=False, **raw)
    cancel.add_argument("id", help="the command's id")
    cancel.add_argument("--wait", default="30s", help="time to wait for the verdict (default: 30s)")
    cancel.add_argument("--bridge", help="host:port of the bridge (default: bridge.listen of the settings)")
    cancel.add_argument("--output", choices=("text", "json"), default="text", help="output format")


def run_cancel(arguments: argparse.Namespace) -> int:
    """Cancel a command and print the verdict. Return 1 unless the device never saw it."""
    settings = load(arguments.config, kafka=False)
    verdict = asyncio.run(_cancel(arguments, settings, seconds("--wait", arguments.wait)))
    if arguments.output == "json":
        show(json.dumps({"id": arguments.id, "state": verdict.state, "status": verdict.status, "why": verdict.why}))
    else:
        tell(f"{arguments.id}: {_sentence(verdict)}")
    return 0 if verdict.state is CommandState.CANCELLED else 1


async def _cancel(arguments: argparse.Namespace, settings: CloudSettings, wait_s: float) -> CancelVerdict:
    async with connected(arguments, settings) as operator:
        try:
            async with asyncio.timeout(wait_s):
                return await operator.cancel(arguments.id)
        except TimeoutError:
            why = "its gateway is away, or its device is about to run it. Ask again, or see: fogline command show"
            return CancelVerdict(CommandState.CANCELLING, 202, f"not decided yet: {why}")


def _sentence(verdict: CancelVerdict) -> str:
    if verdict.state is CommandState.CANCELLED:
        return "CANCELLED, its device never saw it"
    return f"{verdict.status}, {verdict.why}"


@asynccontextmanager
async def connected(arguments: argparse.Namespace, settings: CloudSettings, name: str = "") -> AsyncIterator[Operator]:
    """Connect an operator as the arguments and the settings say. `name` is its container id. Raises `Misconfigured`."""
    where = arguments.bridge or settings.operator.bridge or settings.bridge.listen
    host, port = split_endpoint(where, "--bridge" if arguments.bridge else "operator.bridge")
    async with Operator(
        host, port, settings.tenant, name=name, security=operator_security(settings.operator, host)
    ) as operator:
        try:
            async with asyncio.timeout(_CONNECT_S):
                await operator.attached()
        except TimeoutError:
            raise Misconfigured(f"no bridge answers at {where}: {operator.why or 'no connection'}") from None
        yield operator
