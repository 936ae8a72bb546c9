"""`fogline command approve`."""

import argparse
import asyncio
import json
from typing import Any

from fogline.commands.command import Status
from fogline.process.console.terminal import show, tell
from fogline.process.console.times import seconds
from fogline_cloud.cli.common import add_command
from fogline_cloud.cli.operators.operator_link import add_bridge, connected, whole_id
from fogline_cloud.commands.client.verdict import ApprovalVerdict
from fogline_cloud.settings import CloudSettings, load


def add_approve(commands: "argparse._SubParsersAction[Any]", raw: dict[str, Any]) -> None:
    """Add the subcommand."""
    about = "approve a command of another operator, which waits for that"
    approve = add_command(commands, "approve", run_approve, about, **raw)
    approve.add_argument("id", help="the command's id or its first characters")
    approve.add_argument("--wait", default="30s", help="time to wait for a bridge (default: 30s)")
    add_bridge(approve)


def run_approve(arguments: argparse.Namespace) -> int:
    """Approve a command. Return 1 if it is not approved."""
    settings, wait_s = load(arguments.config, kafka=False), seconds("--wait", arguments.wait)
    command_id, why = whole_id(arguments, settings)
    if why:
        verdict = ApprovalVerdict(int(Status.UNKNOWN_DEVICE), why)
    else:
        verdict = asyncio.run(_approve(arguments, settings, command_id, wait_s))
    if arguments.json:
        show(json.dumps({"id": command_id, "status": verdict.status, "why": verdict.why}))
    else:
        tell(f"{command_id}: " + ("approved" if verdict.status == 200 else f"{verdict.status}, {verdict.why}"))
    return 0 if verdict.status == 200 else 1


async def _approve(arguments: argparse.Namespace, settings: CloudSettings, command_id: str, wait_s: float) -> ApprovalVerdict:
    async with connected(arguments, settings) as operator:
        try:
            async with asyncio.timeout(wait_s):
                return await operator.approve(command_id)
        except TimeoutError:
            return ApprovalVerdict(int(Status.OFFLINE), "no bridge has answered; ask again")
