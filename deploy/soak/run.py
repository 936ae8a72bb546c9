"""The soak: start, load, faults, drain, judgement."""

import asyncio
import time
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console

from demo.course import Course, cancel
from demo.evidence import gather
from demo.judgement import Judgement, judge
from demo.payload import Device
from demo.picture import GatewayNews, Picture
from demo.place import Place
from demo.run import unlimited
from demo.screen import show
from demo.waiting import until
from soak.breaker import Breaker
from soak.flat import Sample, held, not_at_rest, not_flat
from soak.lines import Lines
from soak.reconnects import Fates
from soak.sampling import Sampler
from soak.schedule import Fault, Kind, kills
from soak.verdict import Load, Verdict

SETTLED_LIMIT_S = 60.0
"""How long gateways and bridges may have anything unsettled once the outboxes are empty."""
REST_S = 3.0
"""For so long Bluetooth devices are left in peace before it is looked at what gateways hold: they know the services by then."""
EVERY_S, RECONNECTS_EVERY_S, BLE_EVERY_S = 5.0, 2.0, 1.0
"""From one look at what the processes hold to the next."""
LIVING = ("gateway-1", "gateway-2", "bridge-1", "bridge-2")
"""What stays the same over hundreds of reconnects."""


@dataclass(frozen=True, slots=True)
class Options:
    """`faults`: what happens when; `reconnects`: how many there are to be, 0: they are not counted.

    `ble`: how many of Bluetooth devices, by `seed`. `seconds`: how long devices send, if not as long as the reconnects take.
    `wanted_rate`: the least that they offer.
    """

    faults: list[Fault]
    reconnects: int
    ble: int
    seed: int
    seconds: float
    rate: float
    wanted_rate: float


class Soak:
    """One run. `stop` may be set at any time; the judgement is still made."""

    def __init__(
        self, place: Place, lines: Lines, options: Options, console: Console, *, fates: Fates, fleet: list[Device]
    ) -> None:
        self.stop = asyncio.Event()
        self.picture = Picture({name: GatewayNews() for name in place.gateways})
        self._place = place
        self._lines = lines
        self._fates = fates
        self._fleet = fleet
        self._options = options
        self._console = console
        self._course = Course(place, self.picture, cycles=options.ble, seed=options.seed)
        self._world = self._course.world
        self._devices = self._world.devices(count=len(fleet), rate=options.rate)
        self._breaker = Breaker(place, self._world, self._devices, lines, self.picture)
        asked = (*self._world.gateways, *self._world.bridges)
        every_s = RECONNECTS_EVERY_S if options.reconnects else BLE_EVERY_S if options.ble else EVERY_S
        self.sampler = Sampler((*self._world.parts.values(), self._devices), asked, self.picture, every_s)
        self._load_s = 0.0
        self._at_rest: list[dict[str, Sample]] = []

    @property
    def done(self) -> list[dict[str, Any]]:
        """Every fault as it went."""
        return [asdict(each) for each in self._breaker.done]

    @property
    def marks(self) -> list[tuple[float, str]]:
        """When which part was killed."""
        return [(each.began_s, each.fault.target) for each in self._breaker.done if each.fault.kind is Kind.KILL]

    def strike(self) -> None:
        """End everything at once."""
        self._devices.strike()
        self._world.strike()

    async def run(self) -> Verdict | None:
        """The whole course; `None` if it was stopped before anything was sent. Raises `Misconfigured`."""
        screen = asyncio.create_task(show(self.picture, self._console, plain=True), name="screen")
        try:
            if not await self._course.started(self.stop):
                return None
            async with self._course.watched():
                await self._devices.start()
                if self._options.ble:
                    await self._rest()
                sampling = asyncio.create_task(self.sampler.run(), name="sampling")
                try:
                    await self._load()
                    if self._options.ble:  # links at rest hold more than links that come and go
                        await cancel(sampling)
                    await self._calm()
                finally:
                    await cancel(sampling)
                if self._options.reconnects:
                    await self._settled()
                await self._course.drain(self._breaker.settle)
            return await self._judge()
        finally:
            await cancel(screen)
            await self._breaker.abandon()
            await self._devices.stop()
            await self._world.end()

    async def _load(self) -> None:
        """Devices publish, and everything that can happen does."""
        self.picture.doing = "devices publish"
        self._world.begin()
        began = time.monotonic()
        faults = asyncio.create_task(self._breaker.run(self._options.faults), name="faults")
        try:
            await until(lambda: self.stop.is_set() or self._course.fallen.is_set() or self._enough(began))
        finally:
            await cancel(faults)
        self._load_s = time.monotonic() - began

    async def _calm(self) -> None:
        """Nothing is sent and nothing fails any more; everybody comes back."""
        self._fates.calm = True
        self._devices.tell("quiet")
        self.picture.doing = "devices are quiet, everybody comes back"
        if not self._course.fallen.is_set():
            await self._breaker.settle()
            if self._options.ble:
                await self._rest()
        await self._course.finish(self._devices)

    async def _rest(self) -> None:
        """Until every Bluetooth device is connected; it is a problem if they never are. What is held then is noted."""
        valves = sum(not each.advertises for each in self._place.ble)
        if not await self._course.until(lambda: self.picture.air.linked == valves, SETTLED_LIMIT_S):
            self._course.problems.append(f"{self.picture.air.linked} of {valves} Bluetooth devices are connected")
        await asyncio.sleep(REST_S)
        self._at_rest.append({each.part: each for each in await self.sampler.look() if each.part in LIVING})

    def _enough(self, began: float) -> bool:
        if self._options.ble:
            return self.picture.air.cycles >= self._options.ble
        if self._options.reconnects:
            return sum(self._reconnects().values()) >= self._options.reconnects
        return time.monotonic() - began >= self._options.seconds

    def _reconnects(self) -> Counter[str]:
        if self._options.ble:
            return Counter(bluetooth=self.picture.air.cycles)
        return Counter(fault.name.lower() for line in self._lines.bridges.values() for fault in line.failed)

    async def _settled(self) -> None:
        """Until gateways and bridges say that nothing which they sent is unsettled; it is a problem if they never do."""
        await self._course.emptied()
        deadline = time.monotonic() + SETTLED_LIMIT_S
        while time.monotonic() < deadline:
            await self.sampler.take()
            found = {part: self.picture.census.get(part, {}).get("unsettled") for part in LIVING}
            if not any(count is None or count for count in found.values()):
                return
        self._course.problems += [f"{part}: {count} deliveries are unsettled" for part, count in found.items() if count != 0]

    async def _judge(self) -> Verdict:
        self.picture.doing = "comparing sets of ids, and verifying the ledger"
        sent = self.picture.devices.sent
        evidence = await asyncio.to_thread(gather, self._place, sent or unlimited(self._fleet))
        judgement = await asyncio.to_thread(judge, evidence)
        ledger = await self._course.verified()
        return self._verdict(judgement, sum(sent.values()) if sent else judgement.acknowledged, ledger)

    def _verdict(self, judgement: Judgement, offered: int, ledger: dict[str, Any] | None) -> Verdict:
        samples = self.sampler.samples
        problems = [*self._course.problems, *self._breaker.problems]
        counted = self._options.reconnects or self._options.ble
        if counted and not self.stop.is_set():
            problems += not_flat(samples, LIVING)
        if len(self._at_rest) == 2:
            problems += not_at_rest(*self._at_rest)
        return Verdict(
            judgement,
            Load(offered, judgement.acknowledged, round(self._load_s, 1), self._options.wanted_rate),
            ledger,
            problems,
            kills=kills(each.fault for each in self._breaker.done),
            planned=kills(self._options.faults) if self._options.faults else {},
            reconnects=self._reconnects(),
            reconnects_wanted=counted,
            stopped=self.stop.is_set(),
            held=[found for part in (*self._world.parts, "devices") if (found := held(samples, part)) is not None],
        )
