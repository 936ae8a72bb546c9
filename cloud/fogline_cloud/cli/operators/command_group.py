"""`fogline command send --where`, and `fogline command group`: one command for many devices."""

import argparse
import asyncio
import base64
import json
import os
import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from fogline.address import is_identifier
from fogline.commands.command import CommandState
from fogline.errors import Misconfigured
from fogline.process.console.command_line import INTERRUPTED, add_limit
from fogline.process.console.listing import show_rows, utc
from fogline.process.console.terminal import show, show_progress, tell
from fogline.process.kernel_clock import wall_clock_ms
from fogline_cloud.cli.common import add_command, add_group
from fogline_cloud.cli.operators.operator_link import add_bridge, connected, devices_of
from fogline_cloud.commands.client.command_group import GroupCommand, GroupFile, GroupRun
from fogline_cloud.commands.client.operator import Ask
from fogline_cloud.devices.device_table import MAX_DEVICES
from fogline_cloud.settings import load

EXAMPLE = """\
examples:
  fogline command send --where type=lamp,site=berlin switch --json '{"on": true}' --rate 50 --stop-at-failures 10%
  fogline command group list
  fogline command group show 3f9a1c
  fogline command group resume 3f9a1c      go on after Ctrl-C, or after too many failures; nothing is sent twice
  fogline command group cancel 3f9a1c      cancel what no device has seen, and send nothing more

exit status: 0 every command succeeded, 1 not every one, 2 the input or the settings are wrong, 130 interrupted
"""
_FOLDER = "folder of the groups (default: ~/.local/state/fogline/groups)"


class _Where(argparse.Action):
    """Option `--where`. With it, `send` takes no device, so the positional arguments are not both required."""

    def __init__(self, *args: Any, device: argparse.Action, name: argparse.Action, **more: Any) -> None:
        super().__init__(*args, **more)
        self._device, self._name = device, name

    def __call__(self, _parser: Any, namespace: argparse.Namespace, values: Any, _option: str | None = None) -> None:
        """Take one more filter."""
        namespace.where = [*(namespace.where or []), values]
        self._device.nargs = "?"
        self._device.required = self._name.required = False


def require_no_device(arguments: argparse.Namespace) -> None:
    """Check that `send --where` names a command and no device. Raises `Misconfigured`."""
    given = [each for each in (arguments.device, arguments.name) if each is not None]
    if len(given) != 1:
        raise Misconfigured("--where: name the command and no device, for example: send --where type=lamp switch")
    arguments.device, arguments.name = None, given[0]


def add_groups(
    commands: "argparse._SubParsersAction[Any]", send: argparse.ArgumentParser, device: argparse.Action, name: argparse.Action
) -> None:
    """Add the options of `send` for a group, and the subcommands of `group`."""
    about = "send to all devices that match"
    send.add_argument("--where", action=_Where, device=device, name=name, metavar="NAME=VALUE,...", help=about)
    send.add_argument("--rate", type=float, default=50.0, help="with --where: commands that begin per second (default: 50)")
    send.add_argument("--stop-at-failures", metavar="SHARE", help="with --where: cancel the rest at this share, such as 10%%")
    send.add_argument("--groups", type=Path, help=_FOLDER)
    raw: dict[str, Any] = {"epilog": EXAMPLE, "formatter_class": argparse.RawDescriptionHelpFormatter}
    group = add_group(
        commands, "group", "list, show, resume or cancel one command for many devices", description=__doc__, **raw
    )
    listing = add_command(group, "list", run_list, "print the groups of this machine, the newest last", **raw)
    listing.add_argument("--groups", type=Path, help=_FOLDER)
    add_limit(listing, 50, "the newest")
    for word, run, about in (
        ("show", run_show, "print the states"),
        ("resume", run_resume, "send what is left"),
        ("cancel", run_cancel, "cancel what no device has seen"),
    ):
        each = add_command(group, word, run, about, **raw)
        each.add_argument("id", help="the id of the group")
        each.add_argument("--groups", type=Path, help=_FOLDER)
        add_bridge(each)


def send_group(arguments: argparse.Namespace, ask: Ask) -> int:
    """Send a command to all devices that match. Return 0 if every one succeeded."""
    if not arguments.rate > 0:
        raise Misconfigured(f"--rate {arguments.rate}: expected more than 0")
    if not ask.reply:
        raise Misconfigured("--one-way: the commands of a group need replies, which say how they ended")
    settings = load(arguments.config, kafka=False)
    share = _share(arguments.stop_at_failures)
    matching = devices_of(arguments, settings, where=arguments.where, limit=MAX_DEVICES)
    found = [each["device"] for each in matching.records]
    if not found:
        raise Misconfigured(f"--where {','.join(arguments.where)}: no device matches. See: fogline device list --where ...")
    command = GroupCommand(
        id=secrets.token_hex(4),
        tenant=settings.tenant,
        devices=found,
        name=ask.name,
        data_base64=base64.b64encode(ask.data).decode(),
        content_type=ask.content_type,
        ttl_s=ask.ttl_s or 30.0,
        durable=ask.durable,
        idempotent=ask.idempotent,
        newest_wins=ask.newest_wins,
        rate_s=arguments.rate,
        stop_share=share,
        created_ms=wall_clock_ms(),
    )
    group = GroupFile.create(_folder(arguments), command)
    tell(f"group {command.id}: {command.name} for {len(found)} devices")
    return _run(arguments, group, lambda run: run.run())


def run_list(arguments: argparse.Namespace) -> int:
    """Print the groups whose files are on this machine. A file that cannot be read is named, and left out."""
    folder = _folder(arguments)
    groups = []
    for path in sorted(folder.glob("*.jsonl")):
        try:
            groups.append(GroupFile.read(folder, path.stem))
        except Misconfigured as error:
            tell(str(error))
    groups.sort(key=lambda each: each.command.created_ms)
    more, groups = max(0, len(groups) - arguments.limit), groups[-arguments.limit :]
    if arguments.json:
        show(json.dumps([_summary(each) for each in groups]))
        return 0
    heads = ("id", "created", "command", "devices", "left", "states")
    rows = [
        (
            *(each.command.id, utc(each.command.created_ms / 1000), each.command.name, len(each.command.devices)),
            *(len(each.left), ", ".join(f"{state} {count}" for state, count in sorted(each.states.items())) or "-"),
        )
        for each in groups
    ]
    show_rows(heads, rows, f"there is no group in {folder}", more)
    return 0


def _summary(group: GroupFile) -> dict[str, Any]:
    command = group.command
    known = {"id": command.id, "created": utc(command.created_ms / 1000), "command": command.name}
    return known | {"devices": len(command.devices), "left": len(group.left), "states": dict(group.states)}


def run_show(arguments: argparse.Namespace) -> int:
    """Print the states of a group. Return 0 if every command succeeded."""
    return _report(arguments, _read(arguments))


def run_resume(arguments: argparse.Namespace) -> int:
    """Send what is left of a group."""
    group = _read(arguments)
    group.require_recent(wall_clock_ms())
    return _run(arguments, group, lambda run: run.run())


def run_cancel(arguments: argparse.Namespace) -> int:
    """Cancel what is left of a group."""
    group = _read(arguments)
    group.require_recent(wall_clock_ms())
    return _run(arguments, group, lambda run: run.cancel(group.left))


def _run(arguments: argparse.Namespace, group: GroupFile, work: Callable[[GroupRun], Awaitable[None]]) -> int:
    try:
        asyncio.run(_connect_and(arguments, group, work))
    except KeyboardInterrupt:
        show_progress("")
        tell(f"interrupted: {_go_on(group)}")
        return INTERRUPTED
    return _report(arguments, group)


async def _connect_and(arguments: argparse.Namespace, group: GroupFile, work: Callable[[GroupRun], Awaitable[None]]) -> None:
    settings = load(arguments.config, kafka=False)
    if settings.tenant != group.command.tenant:
        raise Misconfigured(f"group {group.command.id} belongs to tenant {group.command.tenant}, not to {settings.tenant}")
    async with connected(arguments, settings, name=group.command.operator_name) as operator:
        await work(GroupRun(group, operator, lambda: _progress(group)))
    show_progress("")


def _progress(group: GroupFile) -> None:
    states = ", ".join(f"{state} {count}" for state, count in sorted(group.states.items()))
    show_progress(f"{states}, left {len(group.left)}")


def _report(arguments: argparse.Namespace, group: GroupFile) -> int:
    states, left = dict(sorted(group.states.items())), len(group.left)
    bad = [each for each in group.verdicts.values() if each.state != CommandState.SUCCEEDED]
    if getattr(arguments, "json", None) is True or getattr(arguments, "output", "") == "json":
        others = [{"device": each.device, "state": each.state, "status": each.status, "why": each.why} for each in bad]
        show(json.dumps({"group": group.command.id, "states": states, "left": left, "others": others}))
    else:
        rows = [(each.device, each.state, each.status or "-", each.why) for each in bad]
        if rows:
            show_rows(("device", "state", "status", "why"), rows, "")
        states_text = ", ".join(f"{state} {count}" for state, count in states.items()) or "nothing has ended"
        tell(f"group {group.command.id}: {states_text}")
    if left:
        tell(f"{_go_on(group)}")
    return 0 if not left and not bad else 1


def _go_on(group: GroupFile) -> str:
    return f"{len(group.left)} devices are left. Go on with: fogline command group resume {group.command.id}"


def _read(arguments: argparse.Namespace) -> GroupFile:
    if not is_identifier(arguments.id):
        raise Misconfigured(f"{arguments.id!r} is not the id of a group")
    found = GroupFile.read(_folder(arguments), arguments.id)
    if found.command.created_by:
        raise Misconfigured(f"group {arguments.id} was started on the operator's page, and goes on there only")
    return found


def _folder(arguments: argparse.Namespace) -> Path:
    if arguments.groups is not None:
        return Path(arguments.groups)
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "fogline" / "groups"


def _share(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise Misconfigured(f"--stop-at-failures {text!r}: expected a share such as 10% or 0.1")
    return share
