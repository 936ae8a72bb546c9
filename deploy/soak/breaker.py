"""Applies the scheduled faults to parts and lines, and brings parts back."""

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from demo.polling import until
from demo.site import Site
from demo.snapshot import Snapshot
from demo.workspace import Workspace
from fogline.errors import Misconfigured
from fogline_lab.supervisor import ChildProcess, kill_after_write, kill_child, start_child, stop_children
from fogline_lab.tcp_line import LineFault
from fogline_lab.udp_line import DatagramFaults
from soak.lines import NO_FAULTS, FaultyLines
from soak.machines import Machines
from soak.schedule import FaultKind, ScheduledFault

CRASH_LIMIT_S = 20.0
"""The longest that a part may take to its crash point; then it is killed."""
RESTART_S = 2.0
"""Pause between two tries to start a part: it needs Kafka, which may be down as well."""
RESTARTS = 30
BACK_LIMIT_S = 600.0
"""The longest that the last faults and restarts may take."""
_LINE_FAULTS = {
    FaultKind.RESET: LineFault.RESET,
    FaultKind.CLOSE: LineFault.CLOSE,
    FaultKind.SWALLOW: LineFault.SWALLOW,
    FaultKind.STALL: LineFault.STALL,
}

Begin = Callable[[], None]
"""Called when a fault begins, after it has waited for the fault before it."""


@dataclass(slots=True)
class AppliedFault:
    """A fault that was begun. `began_s`, `over_s`: since the devices began. `crashed`: the part reached its crash point."""

    fault: ScheduledFault
    began_s: float
    over_s: float | None = None
    crashed: bool = False


class Breaker:
    """Runs the schedule. `applied`: the faults that were begun, in order."""

    def __init__(self, workspace: Workspace, site: Site, devices: ChildProcess, lines: FaultyLines, snapshot: Snapshot) -> None:
        self.applied: list[AppliedFault] = []
        self.problems: list[str] = []
        self._snapshot = snapshot
        self._parts = _PartFaults(workspace, site, Machines(workspace, devices, snapshot), snapshot)
        self._lines = _LineFaults(workspace, devices, lines)
        self._began, self._began_s = time.monotonic(), time.time()
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, faults: Sequence[ScheduledFault]) -> None:
        """Apply each fault at its time. Cancel it to apply no more."""
        self._began, self._began_s = time.monotonic(), time.time()
        for fault in faults:
            await asyncio.sleep(max(0.0, self._began + fault.at_s - time.monotonic()))
            task = asyncio.create_task(self._apply(fault), name=f"{fault.kind} {fault.target}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def wall(self, at_s: float) -> float:
        """Convert the seconds of an applied fault to those of `time.time()`."""
        return self._began_s + at_s

    async def settle(self) -> None:
        """Wait until all faults are over and all parts are back."""
        if self._tasks:
            _, late = await asyncio.wait(set(self._tasks), timeout=BACK_LIMIT_S)
            self.problems += [f"not over after {BACK_LIMIT_S:.0f} s: {task.get_name()}" for task in late]

    async def abandon(self) -> None:
        """Cancel all faults that are not over."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _apply(self, fault: ScheduledFault) -> None:
        applied = AppliedFault(fault, self._now_s())

        def begin() -> None:
            applied.began_s = self._now_s()
            self.applied.append(applied)
            self._snapshot.journal.append(fault.text)

        try:
            match fault.kind:
                case FaultKind.KILL:
                    applied.crashed = await self._parts.kill(fault, begin)
                case FaultKind.FREEZE:
                    await self._parts.freeze(fault, begin)
                case FaultKind.ROLL:
                    await self._parts.roll(begin)
                case FaultKind.RESTORE | FaultKind.CARD:
                    await self._parts.exchange_machine(fault, begin)
                case _:
                    begin()
                    await self._lines.apply(fault)
        except Misconfigured as error:
            self.problems.append(f"after {fault.text.strip()}: {error}")
        applied.over_s = self._now_s()

    def _now_s(self) -> float:
        return round(time.monotonic() - self._began, 1)


class _PartFaults:
    """Faults of child processes. A fault waits for the one before it that has the same part."""

    def __init__(self, workspace: Workspace, site: Site, machines: Machines, snapshot: Snapshot) -> None:
        self._workspace = workspace
        self._machines = machines
        self._site = site
        self._snapshot = snapshot
        self._locks = {name: asyncio.Lock() for name in site.parts}

    async def kill(self, fault: ScheduledFault, begin: Begin) -> bool:
        """Kill a part and start it again. Returns True if it reached the crash point of `fault`, if there is one."""
        part = self._site.parts[fault.target]
        crashed = False
        async with self._down(part):
            begin()
            if part in self._site.gateways:
                wal = self._workspace.outbox(part.name) / "outbox.db-wal"
                await asyncio.to_thread(kill_after_write, part, wal, 1.0)
            else:
                part.kill()
            await asyncio.to_thread(part.join)
            await asyncio.sleep(float(fault.parameters["away_s"]))
            if "crash_at" in fault.parameters:
                crashed = await _crash(part, str(fault.parameters["crash_at"]))
            await _restart(part)
        return crashed

    async def freeze(self, fault: ScheduledFault, begin: Begin) -> None:
        """Stop a part (SIGSTOP) for a while."""
        part = self._site.parts[fault.target]
        async with self._down(part):
            begin()
            part.send(signal.SIGSTOP)
            try:
                await asyncio.sleep(float(fault.parameters["for_s"]))
            finally:
                part.send(signal.SIGCONT)

    async def roll(self, begin: Begin) -> None:
        """Restart the bridges in order, one after the other."""
        begin()
        for part in self._site.bridges:
            async with self._down(part):
                await stop_children(part)
                await _restart(part)

    async def exchange_machine(self, fault: ScheduledFault, begin: Begin) -> None:
        """Let a gateway go on from its backup, or with an empty card. Its devices send nothing until it is back."""
        part, name = self._site.parts[fault.target], fault.target
        async with self._locks[name]:
            backup = await self._machines.back_up(name) if fault.kind is FaultKind.RESTORE else None
            async with self._machines.drained(name), self._marked_down(part):
                begin()
                part.kill()
                await asyncio.to_thread(part.join)
                if backup is not None:
                    await self._machines.restore(name, backup)
                else:
                    await self._machines.exchange_card(name)
                await _restart(part)

    @contextlib.asynccontextmanager
    async def _down(self, part: ChildProcess) -> AsyncIterator[None]:
        async with self._locks[part.name], self._marked_down(part):
            yield

    @contextlib.asynccontextmanager
    async def _marked_down(self, part: ChildProcess) -> AsyncIterator[None]:
        self._snapshot.down.add(part.name)
        try:
            yield
        finally:
            self._snapshot.down.discard(part.name)


class _LineFaults:
    """Faults of the lines between parts."""

    def __init__(self, workspace: Workspace, devices: ChildProcess, lines: FaultyLines) -> None:
        self._workspace = workspace
        self._devices = devices
        self._lines = lines

    async def apply(self, fault: ScheduledFault) -> None:
        """Apply a fault to a line; return when it is over."""
        match fault.kind:
            case FaultKind.SLOW:
                line = self._lines.bridges[fault.target]
                line.bits_per_s = float(fault.parameters["bits_per_s"])
                await asyncio.sleep(float(fault.parameters["for_s"]))
                line.bits_per_s = 0.0
            case FaultKind.DATAGRAMS:
                coap = self._lines.gateways[fault.target]
                coap.change(DatagramFaults(*(float(fault.parameters[each]) for each in ("lose", "duplicate", "reorder"))))
                await asyncio.sleep(float(fault.parameters["for_s"]))
                coap.change(NO_FAULTS)
            case FaultKind.DROP:
                self._devices.tell(f"cut {self._workspace.gateways.index(fault.target)}")
            case _:
                self._lines.bridges[fault.target].fail(_LINE_FAULTS[fault.kind])


async def _crash(part: ChildProcess, point: str) -> bool:
    """Start a part that kills itself at a crash point. Returns True if it came to that point in time."""
    part.start(crash_at=point)
    crashed = await until(lambda: not part.running, CRASH_LIMIT_S)
    await kill_child(part)
    return crashed


async def _restart(part: ChildProcess) -> None:
    """Start a part, again and again as systemd would. Raises `Misconfigured` with the message of the last try."""
    for _ in range(RESTARTS):
        with contextlib.suppress(Misconfigured):
            await start_child(part)
            return
        await kill_child(part)
        await asyncio.sleep(RESTART_S)
    await start_child(part)
