"""One command for many devices: the file of a group, and the run that sends what is left of it.

The file is the group's memory. Its first line has the devices and the command, and is on the disk before anything is sent; then
comes a line for each verdict. Message ids follow from the ids of group and device, so whoever goes on sends nothing twice.
"""

import asyncio
import base64
import math
import os
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Annotated, Protocol

import msgspec
from msgspec import Meta

from fogline.commands.command import REMEMBER_COMMANDS_S, CommandState
from fogline.documents.document_error import explained
from fogline.errors import Misconfigured, Unreachable
from fogline_cloud.commands.client.operator import Ask
from fogline_cloud.commands.client.verdict import CancelVerdict, CommandVerdict

MAX_IN_FLIGHT = 500
"""Commands of a group without a verdict, at a time."""
RESUMABLE_MS = (REMEMBER_COMMANDS_S - 86_400) * 1000
"""Age up to which a group may be resumed or cancelled, in milliseconds: bridges and gateways know its commands for longer."""
_GOOD = (CommandState.SUCCEEDED, CommandState.ACCEPTED)
_UNKNOWN = 404


class GroupCommand(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of a group's file. `rate_s`: commands that may begin per second."""

    id: str
    tenant: str
    devices: list[str]
    name: str
    data_base64: str = ""
    content_type: str | None = None
    ttl_s: float
    durable: bool = True
    idempotent: bool = False
    newest_wins: bool = False
    rate_s: Annotated[float, Meta(gt=0)]
    stop_share: Annotated[float, Meta(gt=0, le=1)] | None = None
    created_ms: int  # milliseconds since 1970 on the operator's clock
    created_by: str = ""  # the user of the operator's page; "" for the command line

    def ask_of(self, device: str) -> Ask:
        """Return the command for one device."""
        return Ask(
            device=device,
            name=self.name,
            data=base64.b64decode(self.data_base64),
            content_type=self.content_type,
            ttl_s=self.ttl_s,
            durable=self.durable,
            idempotent=self.idempotent,
            newest_wins=self.newest_wins,
            message_id=self.message_id(device),
        )

    def message_id(self, device: str) -> str:
        """Return the message id of the command for one device."""
        return f"group/{self.id}/{device}"

    @property
    def operator_name(self) -> str:
        """The container id and the reply id of the operator that sends the group, which command ids follow from."""
        return f"group-{self.id}"


class GroupVerdict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The end of the command for one device. `state` is `NOT_SENT` if the group was cancelled before it was sent."""

    device: str
    state: str
    status: int = 0
    command: str = ""
    why: str = ""


class GroupFile:
    """The file of a group. One process at a time may write it."""

    def __init__(self, path: Path, command: GroupCommand) -> None:
        self.command = command
        self.verdicts: dict[str, GroupVerdict] = {}
        self._path = path
        self._cut_off = 0  # bytes of a last line that a crash has cut off; or another process is writing it just now

    @classmethod
    def create(cls, folder: Path, command: GroupCommand) -> "GroupFile":
        """Write the file of a new group, on the disk. Raises `Misconfigured`."""
        path = folder / f"{command.id}.jsonl"
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with path.open("xb") as file:
                file.write(msgspec.json.encode(command) + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise Misconfigured(f"{path}: the group cannot be written: {error.strerror}") from None
        return cls(path, command)

    @classmethod
    def read(cls, folder: Path, group_id: str) -> "GroupFile":
        """Read the file of a group. A last line that is not whole is left out. Raises `Misconfigured`."""
        path = folder / f"{group_id}.jsonl"
        try:
            first, *lines = path.read_bytes().split(b"\n")
            group = cls(path, msgspec.json.decode(first, type=GroupCommand))
            for line in lines[:-1]:
                verdict = msgspec.json.decode(line, type=GroupVerdict)
                group.verdicts[verdict.device] = verdict
        except FileNotFoundError:
            raise Misconfigured(
                f"there is no group {group_id}: {path} is missing. Is it on another machine, or --groups?"
            ) from None
        except OSError as error:
            raise Misconfigured(f"{path}: the group cannot be read: {error.strerror}") from None
        except msgspec.MsgspecError as error:
            raise Misconfigured(
                f"{path}: this is not the file of a group: {explained(error, GroupCommand | GroupVerdict)}"
            ) from None
        group._cut_off = len(lines[-1]) if lines else 0
        return group

    def require_recent(self, now_ms: int) -> None:
        """Check that bridges still know which commands of the group they have taken. Raises `Misconfigured`."""
        if now_ms - self.command.created_ms > RESUMABLE_MS:
            days, why = RESUMABLE_MS // 86_400_000, "the bridges may have forgotten which of its commands were executed"
            remedy = "send a new command to the devices that need it"
            raise Misconfigured(f"group {self.command.id} is more than {days} days old, and {why}: {remedy}")

    def note(self, verdict: GroupVerdict) -> None:
        """Write the verdict of one device."""
        self.verdicts[verdict.device] = verdict
        with self._path.open("ab") as file:
            if self._cut_off:
                file.truncate(file.tell() - self._cut_off)
                self._cut_off = 0
            file.write(msgspec.json.encode(verdict) + b"\n")

    @property
    def left(self) -> list[str]:
        """The devices without a verdict."""
        return [each for each in self.command.devices if each not in self.verdicts]

    @property
    def states(self) -> Counter[str]:
        """The number of devices by state."""
        return Counter(each.state for each in self.verdicts.values())

    @property
    def failed(self) -> int:
        """The number of commands that ended and did not succeed."""
        return sum(each.state not in _GOOD for each in self.verdicts.values())

    @property
    def most_failures(self) -> float:
        """The number of failures at which the rest is not sent."""
        share = self.command.stop_share
        return math.inf if share is None else max(1, math.ceil(share * len(self.command.devices)))


class GroupSender(Protocol):
    """Sends the commands of a group: an `Operator`, or a user of the HTTP API."""

    async def request(self, ask: Ask) -> CommandVerdict:
        """See `Operator.request`."""
        ...

    async def cancel(self, *, message_id: str) -> CancelVerdict:
        """See `Operator.cancel`."""
        ...


class GroupRun:
    """Sends what is left of a group with `operator`, and notes each verdict. `on_verdict` is called after each."""

    def __init__(self, group: GroupFile, operator: GroupSender, on_verdict: Callable[[], None] = lambda: None) -> None:
        self._group = group
        self._operator = operator
        self._on_verdict = on_verdict
        self._in_flight: dict[str, asyncio.Task[None]] = {}
        self._stopping = asyncio.Event()
        self._stopped = False
        self._former = group.failed  # a run counts its own failures, so that one may go on after a stop

    @property
    def _over(self) -> bool:
        return self._stopped or self._group.failed - self._former >= self._group.most_failures

    async def run(self) -> None:
        """Send until all devices have a verdict, or too many commands have failed: then the waiting ones are cancelled.

        Cancelling this call loses no verdict that was noted; the commands go on, and a later run asks for them again.
        """
        pause_s, loop = 1 / self._group.command.rate_s, asyncio.get_running_loop()
        next_s = loop.time()
        try:
            for device in self._group.left:
                while len(self._in_flight) >= MAX_IN_FLIGHT and not self._over:
                    await self._change()
                next_s = max(next_s, loop.time() - 1.0)  # after a wait for a slot, not more than a second's worth at once
                await self._wait_until(next_s)
                next_s += pause_s
                if self._over:
                    break
                task = self._in_flight[device] = asyncio.create_task(self._send(device), name=f"group {device}")
                task.add_done_callback(partial(self._ended, device))
            await self._settle()
        finally:
            for task in self._in_flight.values():
                task.cancel()

    def stop(self) -> None:
        """Send nothing more, and cancel what no device has seen: `run` ends then."""
        self._stopped = True
        self._stopping.set()

    def _ended(self, device: str, _: "asyncio.Task[None]") -> None:
        self._in_flight.pop(device, None)

    async def cancel(self, devices: Iterable[str]) -> None:
        """Cancel the commands of devices without a verdict. Devices to which nothing was sent become NOT_SENT."""
        left = list(devices)
        for begin in range(0, len(left), MAX_IN_FLIGHT):
            await asyncio.gather(*map(self._cancel, left[begin : begin + MAX_IN_FLIGHT]))

    async def _cancel(self, device: str) -> None:
        if device in self._group.verdicts:
            return
        if (task := self._in_flight.get(device)) is not None:
            task.cancel()  # it would send the command again, also after a bridge has answered that it does not have it
        found = await self._operator.cancel(message_id=self._group.command.message_id(device))
        if device in self._group.verdicts:
            return
        if found.state is not None:
            self._note(GroupVerdict(device=device, state=found.state, status=found.status, why=found.why))
        elif found.status == _UNKNOWN:
            self._note(GroupVerdict(device=device, state="NOT_SENT", why="the group was cancelled"))
        else:
            raise Unreachable(f"device {device}: {found.why}")

    async def _settle(self) -> None:
        """Wait for the verdicts that are left, and cancel their commands as soon as too many have failed."""
        while self._in_flight:
            if self._over:
                await self.cancel(list(self._in_flight))
                return
            await self._change()

    async def _change(self) -> None:
        """Wait until a command has ended, or the run is to stop."""
        self._stopping.clear()
        stop = asyncio.create_task(self._stopping.wait(), name="group stop")
        try:
            await asyncio.wait({stop, *self._in_flight.values()}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stop.cancel()

    async def _wait_until(self, moment_s: float) -> None:
        left_s = moment_s - asyncio.get_running_loop().time()
        if left_s > 0 and not self._over:
            self._stopping.clear()
            try:
                async with asyncio.timeout(left_s):
                    await self._stopping.wait()
            except TimeoutError:
                return

    async def _send(self, device: str) -> None:
        verdict = await self._operator.request(self._group.command.ask_of(device))
        if device not in self._group.verdicts:
            self._note(_noted(device, verdict))

    def _note(self, verdict: GroupVerdict) -> None:
        self._group.note(verdict)
        self._on_verdict()
        if self._over:
            self._stopping.set()


def _noted(device: str, verdict: CommandVerdict) -> GroupVerdict:
    why = verdict.why or ("" if verdict.state in _GOOD else verdict.data[:200].decode("utf-8", "replace"))
    return GroupVerdict(device=device, state=verdict.state, status=verdict.status, command=verdict.command_id, why=why)
