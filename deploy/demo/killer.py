"""Kills one part after the other under load, starts it again, and waits until something flows through it."""

import asyncio
import contextlib
import time
from collections.abc import Callable

from demo.parts import Part, strike_after_write
from demo.picture import Picture
from demo.place import Place
from demo.plan import Kill, kind, next_victim
from demo.waiting import until
from demo.watch import unknown_to_gateways

DOWN_S = 0.5
"""How long a killed part stays away."""
FLOW_LIMIT_S = 180.0
"""How long a part that is back may take until something has gone through it."""
REST_S = 5.0
"""How long there is at least between the return of one part and the next kill."""
_LOAD_S = 5.0
"""How long the devices may take to be at speed again before a kill."""
_LOADED = 0.85
"""The part of the wanted rate that counts as speed."""


class Killer:
    """`kills` is what came back; `killed` all victims, in order. `parts`: by the names of the plan."""

    def __init__(self, place: Place, parts: dict[str, Part], picture: Picture, every_s: float) -> None:
        self.kills: list[Kill] = []
        self.killed: list[str] = []
        self.problems: list[str] = []
        self._place = place
        self._parts = parts
        self._picture = picture
        self._every_s = every_s
        self._began = time.monotonic()
        self._returns: dict[str, asyncio.Task[None]] = {}
        self._enough = asyncio.Event()

    async def run(self, rate: float) -> None:
        """Until `finish`. `rate`: what the devices try to send per second; kills happen under load.

        Gateway and bridge are waited for before anything else is killed. Spark takes its time to return, and nobody
        upstream needs it: it is waited for before it is killed again.
        """
        self._began = time.monotonic()
        while not await self._pause():
            victim = next_victim(self.killed)
            if kind(victim) == "spark":
                await self.settle()
                await self._until(lambda: self._picture.flow.batches > 0 and self._picture.flow.rows.total > 0, FLOW_LIMIT_S)
            await self._until(lambda: self._rate() > _LOADED * rate, _LOAD_S)
            if not self._enough.is_set():
                await self._kill(victim)

    def finish(self) -> None:
        """Kill nobody any more; `run` returns when the part that it is at has come back."""
        self._enough.set()

    async def settle(self) -> None:
        """Return when everything that was killed is back and something has gone through it."""
        if self._returns:
            await asyncio.wait(self._returns.values())
        for victim, task in self._returns.items():
            if not task.cancelled() and (error := task.exception()) is not None:
                self.problems.append(f"{victim} did not come back: {error}")
        self._returns.clear()

    async def abandon(self) -> None:
        """Wait for nothing any more."""
        for task in self._returns.values():
            task.cancel()
        await asyncio.gather(*self._returns.values(), return_exceptions=True)

    async def _pause(self) -> bool:
        """Between two kills. Returns whether it is enough."""
        last_s = self.kills[-1].at_s if self.kills else 0.0
        due_s = max(REST_S, last_s + self._every_s - self._now_s())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._enough.wait(), due_s)
        return self._enough.is_set()

    async def _kill(self, victim: str) -> None:
        part = self._parts[victim]
        picture = self._picture
        rate, at_s = self._rate(), self._now_s()
        picture.down.add(victim)
        picture.journal.append(f"{at_s:5.0f} s  SIGKILL to {victim} at {rate:.0f} events/s")
        if kind(victim) == "gateway":
            wal = self._place.outbox(victim) / "outbox.db-wal"
            await asyncio.to_thread(strike_after_write, part, wal, 1.0)
        else:
            part.strike()
        self.killed.append(victim)
        kill = Kill(victim, round(at_s, 1), round(rate, 1))
        self.kills.append(kill)
        back = asyncio.create_task(self._bring_back(part, kill), name=f"return of {victim}")
        self._returns[victim] = back
        if kind(victim) != "spark":
            await asyncio.wait([back])

    async def _bring_back(self, part: Part, kill: Kill) -> None:
        picture = self._picture
        began = time.monotonic()
        await part.join()
        if part.name == "spark":
            picture.flow.batches = 0
        await asyncio.sleep(DOWN_S)
        kill.told_late = await asyncio.to_thread(unknown_to_gateways, self._place, picture)
        through = self._through(part.name)
        await part.start()
        kill.back_s = round(time.monotonic() - began, 2)
        picture.down.discard(part.name)
        if not await until(through, FLOW_LIMIT_S):
            self.problems.append(f"nothing went through {part.name} for {FLOW_LIMIT_S:.0f} s after its return")
            return
        kill.flowing_s = round(time.monotonic() - began, 2)
        picture.journal.append(f"{kill.at_s:5.0f} s  {part.name} back after {kill.back_s} s, flowing after {kill.flowing_s} s")

    def _through(self, victim: str) -> Callable[[], bool]:
        """Whether something has gone through `victim` since this call."""
        picture = self._picture
        match kind(victim):
            case "gateway":
                news = picture.gateways[victim]
                stored, settled = news.stored.total, news.settled
                return lambda: news.stored.total > stored and news.settled > settled
            case "bridge":
                events = picture.kafka.events.total
                return lambda: picture.kafka.events.total > events
        rows = picture.flow.rows.total
        return lambda: picture.flow.batches > 0 and picture.flow.rows.total > rows

    async def _until(self, condition: Callable[[], bool], limit_s: float) -> None:
        await until(lambda: condition() or self._enough.is_set(), limit_s)

    def _now_s(self) -> float:
        return time.monotonic() - self._began

    def _rate(self) -> float:
        return self._picture.devices.acknowledged.rate(time.monotonic())
