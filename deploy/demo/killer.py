"""Kills one part after the other under load, restarts it, and waits until events pass it again."""

import asyncio
import contextlib
import time
from collections.abc import Callable

from demo.freshness import Outage
from demo.page_watch import LIMIT_S, PageWatch
from demo.plan import Kill, kind, next_victim
from demo.polling import until
from demo.probes import unknown_to_gateways
from demo.snapshot import Snapshot
from demo.workspace import Workspace
from fogline_lab.supervisor import ChildProcess, kill_after_write, start_child

DOWN_S = 0.5
"""The shortest pause between a kill and the restart, which also waits until the operator's page shows the kill."""
FLOW_LIMIT_S = 180.0
"""The longest time from a restart until an event has passed the part."""
REST_S = 5.0
"""The shortest time from one restart to the next kill."""
_LOAD_S = 5.0
"""The longest wait for the devices' full rate before a kill."""
_LOADED = 0.85
"""Share of the wanted rate that counts as full."""


class Killer:
    """`kills`: all kills with their recovery times. `killed`: all victims, in order. `calm`: held while a part is killed.

    `outages`: the same kills, for the freshness of the table.
    """

    def __init__(self, workspace: Workspace, parts: dict[str, ChildProcess], snapshot: Snapshot, every_s: float) -> None:
        self.kills: list[Kill] = []
        self.killed: list[str] = []
        self.outages: list[Outage] = []
        self.problems: list[str] = []
        self.calm = asyncio.Lock()
        self._workspace = workspace
        self._page = PageWatch(workspace)
        self._watch: asyncio.Task[None] | None = None
        self._parts = parts
        self._snapshot = snapshot
        self._every_s = every_s
        self._began = time.monotonic()
        self._calm_since_s = 0.0
        self._returns: dict[str, asyncio.Task[None]] = {}
        self._enough = asyncio.Event()

    async def run(self, rate: float) -> None:
        """Kill parts until `finish`. `rate`: events/s that the devices try to send; kills happen under load.

        The next kill waits for the recovery of a gateway or a bridge. It does not wait for Spark, which is slow to restart
        and has no part upstream that needs it; only the next kill of Spark does. The first kill waits for the first rows, so
        that the freshness of the table is measured before it, too.
        """
        self._began = time.monotonic()
        self._watch = asyncio.create_task(self._page.run(), name="operator's page")
        await self._until(lambda: self._snapshot.flow.rows.total > 0, FLOW_LIMIT_S)
        self._calm_since_s = self._now_s()
        while not await self._pause():
            victim = next_victim(self.killed)
            if kind(victim) == "spark":
                await self.settle()
                await self._until(lambda: self._snapshot.flow.batches > 0 and self._snapshot.flow.rows.total > 0, FLOW_LIMIT_S)
            await self._until(lambda: self._rate() > _LOADED * rate, _LOAD_S)
            async with self.calm:
                if not self._enough.is_set():
                    await self._kill(victim)

    def finish(self) -> None:
        """Kill no more parts; `run` returns when the current part has recovered."""
        self._enough.set()

    async def settle(self) -> None:
        """Wait until all killed parts have recovered."""
        if self._returns:
            await asyncio.wait(self._returns.values())
        for victim, task in self._returns.items():
            if not task.cancelled() and (error := task.exception()) is not None:
                self.problems.append(f"{victim} did not restart: {error}")
        self._returns.clear()

    async def abandon(self) -> None:
        """Cancel all waits for recovery."""
        for task in (*self._returns.values(), *([self._watch] if self._watch else [])):
            task.cancel()
        await asyncio.gather(*self._returns.values(), return_exceptions=True)

    async def _pause(self) -> bool:
        """Wait for the next kill. Returns True after `finish`."""
        last_s = self.kills[-1].at_s if self.kills else self._calm_since_s
        due_s = max(REST_S, last_s + self._every_s - self._now_s())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._enough.wait(), due_s)
        return self._enough.is_set()

    async def _kill(self, victim: str) -> None:
        part = self._parts[victim]
        snapshot = self._snapshot
        rate, at_s = self._rate(), self._now_s()
        snapshot.down.add(victim)
        outage = Outage(victim, time.monotonic())
        self.outages.append(outage)
        snapshot.journal.append(f"{at_s:5.0f} s  SIGKILL to {victim} at {rate:.0f} events/s")
        if kind(victim) == "gateway":
            wal = self._workspace.outbox(victim) / "outbox.db-wal"
            await asyncio.to_thread(kill_after_write, part, wal, 1.0)
        else:
            part.kill()
        self.killed.append(victim)
        kill = Kill(victim, round(at_s, 1), round(rate, 1))
        self.kills.append(kill)
        back = asyncio.create_task(self._bring_back(part, kill, outage), name=f"return of {victim}")
        self._returns[victim] = back
        if kind(victim) != "spark":
            await asyncio.wait([back])

    async def _bring_back(self, part: ChildProcess, kill: Kill, outage: Outage) -> None:
        snapshot = self._snapshot
        began = time.monotonic()
        seen = asyncio.create_task(self._page.seen_s(part.name), name=f"operator's page shows {part.name}")
        await asyncio.to_thread(part.join)
        if part.name == "spark":
            snapshot.flow.batches = 0
        kill.page_s, _ = await asyncio.gather(seen, asyncio.sleep(DOWN_S))
        if kill.page_s is None:
            self.problems.append(f"the operator's page did not show for {LIMIT_S:.0f} s that {part.name} was killed")
        kill.told_late = await asyncio.to_thread(unknown_to_gateways, self._workspace, snapshot)
        through = self._through(part.name)
        await start_child(part)
        kill.back_s = round(time.monotonic() - began, 2)
        if part.name == "spark":
            outage.session_s = time.monotonic() - part.ready_line["session_s"]
        snapshot.down.discard(part.name)
        if not await until(through, FLOW_LIMIT_S):
            self.problems.append(f"no event passed {part.name} for {FLOW_LIMIT_S:.0f} s after its return")
            return
        outage.over_s = time.monotonic()
        kill.flowing_s = round(outage.over_s - began, 2)
        snapshot.journal.append(f"{kill.at_s:5.0f} s  {part.name} back after {kill.back_s} s, flowing after {kill.flowing_s} s")

    def _through(self, victim: str) -> Callable[[], bool]:
        """Return a condition: an event has passed `victim` since this call."""
        snapshot = self._snapshot
        match kind(victim):
            case "gateway":
                stats = snapshot.gateways[victim]
                stored, settled = stats.stored.total, stats.settled
                return lambda: stats.stored.total > stored and stats.settled > settled
            case "bridge":
                events = snapshot.kafka.events.total
                return lambda: snapshot.kafka.events.total > events
        rows = snapshot.flow.rows.total
        return lambda: snapshot.flow.batches > 0 and snapshot.flow.rows.total > rows

    async def _until(self, condition: Callable[[], bool], limit_s: float) -> None:
        await until(lambda: condition() or self._enough.is_set(), limit_s)

    def _now_s(self) -> float:
        return time.monotonic() - self._began

    def _rate(self) -> float:
        return self._snapshot.devices.acknowledged.rate(time.monotonic())
