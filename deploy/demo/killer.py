"""Kills one part after the other under load, starts it again, and waits until something flows through it."""

import asyncio
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
FLOW_LIMIT_S = 90.0
REST_S = 5.0
"""How long everything runs at least between the return of one part and the next kill."""
_LOAD_S = 5.0
"""How long the devices may take to be at speed again before a kill."""
_LOADED = 0.85
"""The part of the wanted rate that counts as speed."""


class Killer:
    """`kills` is what it has done. `parts`: by the names of the plan."""

    def __init__(self, place: Place, parts: dict[str, Part], picture: Picture, every_s: float) -> None:
        self.kills: list[Kill] = []
        self.problems: list[str] = []
        self._place = place
        self._parts = parts
        self._picture = picture
        self._every_s = every_s
        self._began = time.monotonic()

    @property
    def killed(self) -> list[str]:
        """The victims so far, in order."""
        return [kill.part for kill in self.kills]

    async def run(self, rate: float) -> None:
        """Until cancelled. `rate`: what the devices try to send per second; kills happen under load."""
        self._began = time.monotonic()
        wait_s = self._every_s
        while True:
            await asyncio.sleep(wait_s)
            victim = next_victim(self.killed)
            await until(lambda: self._rate() > _LOADED * rate, _LOAD_S)
            if kind(victim) == "spark":
                await until(lambda: self._picture.flow.batches > 0, FLOW_LIMIT_S)
            began = time.monotonic()
            await self._kill(victim)
            wait_s = max(REST_S, self._every_s - (time.monotonic() - began))

    async def _kill(self, victim: str) -> None:
        part = self._parts[victim]
        picture = self._picture
        rate = self._rate()
        at_s = time.monotonic() - self._began
        picture.down = victim
        picture.journal.append(f"{at_s:5.0f} s  SIGKILL to {victim} at {rate:.0f} events/s")
        if kind(victim) == "gateway":
            wal = self._place.outbox(victim) / "outbox.db-wal"
            await asyncio.to_thread(strike_after_write, part, wal, 1.0)
        else:
            part.strike()
        began = time.monotonic()
        picture.flow.batches = 0 if kind(victim) == "spark" else picture.flow.batches
        await part.join()
        await asyncio.sleep(DOWN_S)
        told_late = await asyncio.to_thread(unknown_to_gateways, self._place, picture)
        through = self._through(victim)
        await part.start()
        back_s = time.monotonic() - began
        picture.down = None
        if not await until(through, FLOW_LIMIT_S):
            self.problems.append(f"nothing went through {victim} for {FLOW_LIMIT_S:.0f} s after its return")
        flowing_s = time.monotonic() - began
        picture.journal.append(f"{at_s:5.0f} s  {victim} was back after {back_s:.1f} s, flowing after {flowing_s:.1f} s")
        kill = Kill(victim, round(at_s, 1), round(rate, 1), round(back_s, 2), round(flowing_s, 2), told_late)
        self.kills.append(kill)

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
        return lambda: picture.flow.batches > 0

    def _rate(self) -> float:
        return self._picture.devices.acknowledged.rate(time.monotonic())
