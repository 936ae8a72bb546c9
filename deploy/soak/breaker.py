"""Does what the schedule says, at its time, and brings back what it has ended."""

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass

from demo.parts import Part, strike_after_write
from demo.picture import Picture
from demo.place import Place
from demo.waiting import until
from demo.world import World
from fogline.crash import VARIABLE
from fogline.errors import Misconfigured
from fogline.testing.faulty_line import Fault as LineFault
from fogline.testing.udp_proxy import Weather
from soak.lines import CALM, Lines
from soak.schedule import Fault, Kind

CRASH_LIMIT_S = 20.0
"""How long a part may take to come to its crash point; then it is killed where it is."""
RESTART_S = 2.0
"""From one try to start a part to the next: it needs Kafka, and that may be away as well."""
RESTARTS = 30
BACK_LIMIT_S = 600.0
"""How long whatever is still on its way back in the end may take."""
_LINES = {
    Kind.RESET: LineFault.RESET,
    Kind.CLOSE: LineFault.CLOSE,
    Kind.SWALLOW: LineFault.SWALLOW,
    Kind.STALL: LineFault.STALL,
}


@dataclass(slots=True)
class Done:
    """A fault as it went. `began_s`, `over_s`: since the devices began. `crashed`: it came to its crash point."""

    fault: Fault
    began_s: float
    over_s: float | None = None
    crashed: bool = False


class Breaker:
    """`done` is what was begun, in order. A fault waits for the one before it that has the same part."""

    def __init__(self, place: Place, world: World, devices: Part, lines: Lines, picture: Picture) -> None:
        self.done: list[Done] = []
        self.problems: list[str] = []
        self._place = place
        self._world = world
        self._devices = devices
        self._lines = lines
        self._picture = picture
        self._began = time.monotonic()
        self._locks = {name: asyncio.Lock() for name in world.parts}
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, faults: Sequence[Fault]) -> None:
        """All of them, each at its time; cancel it to do no more."""
        self._began = time.monotonic()
        for fault in faults:
            await asyncio.sleep(max(0.0, self._began + fault.at_s - time.monotonic()))
            task = asyncio.create_task(self._do(fault), name=f"{fault.kind} {fault.target}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def settle(self) -> None:
        """Return when everything is over and everybody back."""
        if self._tasks:
            _, late = await asyncio.wait(set(self._tasks), timeout=BACK_LIMIT_S)
            self.problems += [f"not over after {BACK_LIMIT_S:.0f} s: {task.get_name()}" for task in late]

    async def abandon(self) -> None:
        """Wait for nothing any more."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _do(self, fault: Fault) -> None:
        done = Done(fault, self._now_s())
        how: dict[Kind, Callable[[Done], Awaitable[None]]] = {
            Kind.KILL: self._kill,
            Kind.FREEZE: self._freeze,
            Kind.ROLL: self._roll,
            Kind.SLOW: self._slow,
            Kind.RADIO: self._radio,
            Kind.DROP: self._drop,
        }
        try:
            await how.get(fault.kind, self._fail)(done)
        except Misconfigured as error:
            self.problems.append(f"after {fault.text.strip()}: {error}")
        done.over_s = self._now_s()

    def _tell(self, done: Done) -> None:
        done.began_s = self._now_s()
        self.done.append(done)
        self._picture.journal.append(done.fault.text)

    # --- parts

    async def _kill(self, done: Done) -> None:
        fault, part = done.fault, self._world.parts[done.fault.target]
        async with self._locks[part.name], self._down(part):
            self._tell(done)
            if part in self._world.gateways:
                wal = self._place.outbox(part.name) / "outbox.db-wal"
                await asyncio.to_thread(strike_after_write, part, wal, 1.0)
            else:
                part.strike()
            await part.join()
            await asyncio.sleep(float(fault.parameters["away_s"]))
            if "crash_at" in fault.parameters:
                done.crashed = await self._crash(part, str(fault.parameters["crash_at"]))
            await _start(part)

    async def _crash(self, part: Part, point: str) -> bool:
        """Have it start, and end by itself at a crash point. Returns whether it came to that."""
        with contextlib.suppress(Misconfigured):  # it may end before it is ready
            await part.start({VARIABLE: point})
        crashed = await until(lambda: not part.running, CRASH_LIMIT_S)
        part.strike()
        await part.join()
        return crashed

    async def _freeze(self, done: Done) -> None:
        part = self._world.parts[done.fault.target]
        async with self._locks[part.name], self._down(part):
            self._tell(done)
            part.send(signal.SIGSTOP)
            try:
                await asyncio.sleep(float(done.fault.parameters["for_s"]))
            finally:
                part.send(signal.SIGCONT)

    async def _roll(self, done: Done) -> None:
        self._tell(done)
        for part in self._world.bridges:
            async with self._locks[part.name], self._down(part):
                await part.stop()
                await _start(part)

    @contextlib.asynccontextmanager
    async def _down(self, part: Part) -> AsyncIterator[None]:
        self._picture.down.add(part.name)
        try:
            yield
        finally:
            self._picture.down.discard(part.name)

    # --- lines

    async def _fail(self, done: Done) -> None:
        self._tell(done)
        self._lines.bridges[done.fault.target].fail(_LINES[done.fault.kind])

    async def _slow(self, done: Done) -> None:
        self._tell(done)
        line = self._lines.bridges[done.fault.target]
        line.bits_per_s = float(done.fault.parameters["bits_per_s"])
        await asyncio.sleep(float(done.fault.parameters["for_s"]))
        line.bits_per_s = 0.0

    async def _radio(self, done: Done) -> None:
        self._tell(done)
        radio = self._lines.radio[done.fault.target]
        radio.change(Weather(*(float(done.fault.parameters[each]) for each in ("lose", "repeat", "reorder"))))
        await asyncio.sleep(float(done.fault.parameters["for_s"]))
        radio.change(CALM)

    async def _drop(self, done: Done) -> None:
        self._tell(done)
        self._devices.tell(f"cut {self._place.gateways.index(done.fault.target)}")

    def _now_s(self) -> float:
        return round(time.monotonic() - self._began, 1)


async def _start(part: Part) -> None:
    """Start it, again and again as systemd would. Raises `Misconfigured` with the words of the last try."""
    for _ in range(RESTARTS):
        with contextlib.suppress(Misconfigured):
            await part.start()
            return
        part.strike()
        await part.join()
        await asyncio.sleep(RESTART_S)
    await part.start()
