"""The radio: does what the supervisor says, one thing after the other, and tells it how that went.

One scanner a process: BlueZ answers a second one with `InProgress`.
"""

import asyncio
import contextlib
import logging
import random
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from bleak import BleakScanner
from bleak.backends.bluezdbus.manager import get_global_bluez_manager
from bleak.backends.device import BLEDevice
from bleak.backends.scanner import AdvertisementData
from bleak.exc import BleakError, BleakGATTProtocolError
from bleak_retry_connector import close_stale_connections, get_device
from bleak_retry_connector.bluez import get_connected_devices

from fogline.amqp.reconnect import Backoff
from fogline.errors import Unreachable
from fogline_edge.adapters.ble.airtime import SPREAD_S, Airtime
from fogline_edge.adapters.ble.announcements import Announcements
from fogline_edge.adapters.ble.attempt import Pause
from fogline_edge.adapters.ble.bluez import Bluez, leave_dead_bus, renew
from fogline_edge.adapters.ble.counters import Counters
from fogline_edge.adapters.ble.heard import NO_RSSI
from fogline_edge.adapters.ble.supervisor import Effect, Supervisor
from fogline_edge.adapters.ble.world import Phase

START_LIMIT_S = 10.0
_AGAIN_S = 1.0
STOP_LIMIT_S = 5.0
BLUEZ_ERRORS = (BleakError, OSError, EOFError, TimeoutError, AttributeError, AssertionError, KeyError)
"""What bleak and its D-Bus library raise when BlueZ, the bus or a device is not as they expect."""
_log = logging.getLogger(__name__)

OnHeard = Callable[[BLEDevice, AdvertisementData], None]


class Radio:
    """One adapter.

    `heard` is called for each advertisement, `renewed` when all that was known of devices and links is void, `changed` when
    phase or problem may be others. `ours`: addresses of devices that are connected to, whose links of a former run are closed.
    """

    def __init__(
        self,
        supervisor: Supervisor,
        *,
        ours: Sequence[str],
        heard: OnHeard,
        renewed: Callable[[], None],
        changed: Callable[[], None],
        counters: Counters,
    ) -> None:
        self.supervisor = supervisor
        self._ours = tuple(ours)
        self._heard = heard
        self._renewed = renewed
        self._changed = changed
        self._counters = counters
        self._loop = asyncio.get_running_loop()
        self._turn = asyncio.Event()
        self._asked: deque[tuple[Callable[[], list[Effect]], asyncio.Future[None]]] = deque()
        self._connecting = asyncio.Lock()
        self._airtime = Airtime()
        self._announcements = Announcements(supervisor.problem, supervisor.action)
        self._refused = ""
        self._scanner: BleakScanner | None = None
        self._bluez = Bluez(supervisor.limits.wanted, self._turn.set)
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin; whether there is a radio at all is seen later, again and again."""
        logging.getLogger("bleak").setLevel(logging.ERROR)  # what it warns of is said here, once and for people
        for name, run in (("ble bus", self._keep_bus), ("ble supervisor", self._supervise)):
            self._tasks.append(self._loop.create_task(_unending(run), name=name))

    async def close(self) -> None:
        """Stop scanning. Safe to call twice."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for _, waiting in self._asked:
            waiting.cancel()
        await self._drop_scanner()
        await renew()

    @property
    def adapter(self) -> str:
        """Its name."""
        return self.supervisor.world.adapter or ""

    @asynccontextmanager
    async def connecting(self, address: str, *, failed: bool, pause: bool) -> AsyncIterator[Pause]:
        """While the block runs nothing else is connected to; with `pause`, scanning is paused until its `Pause` is ended.

        `failed`: the last attempt to connect to this device did. Waits until the budget of pauses has room for the device.
        Raises `Unreachable` if the radio is in no state for that.
        """
        async with self._alone(address, failed=failed, pause=pause):
            if not self.supervisor.ready:
                raise Unreachable(self.supervisor.problem or "the radio is not ready")
            if not pause:
                yield Pause(None, lambda: None)
                return
            limit_s = self._airtime.left_s(address, self._loop.time(), failed=failed)
            counted = self._airtime.began(address, self._loop.time())

            def end() -> None:
                resumed = self._ask(self.supervisor.resume)
                resumed.add_done_callback(lambda _: self._airtime.ended(counted, self._loop.time()))

            paused = Pause(limit_s, end)
            try:
                await asyncio.shield(self._ask(self.supervisor.pause))
                yield paused
            finally:
                paused.end()

    @asynccontextmanager
    async def _alone(self, address: str, *, failed: bool, pause: bool) -> AsyncIterator[None]:
        """Nothing else is connected to, and a device that pauses scanning has some of the budget left."""
        while True:
            async with self._connecting:
                wait_s = self._airtime.wait_s(address, self._loop.time(), failed=failed) if pause else 0.0
                if wait_s <= 0:
                    yield
                    return
            await asyncio.sleep(wait_s + random.uniform(0.0, SPREAD_S))

    def _ask(self, decide: Callable[[], list[Effect]]) -> asyncio.Future[None]:
        """Have the supervisor decide something at its turn; the future is done when that has been done."""
        waiting: asyncio.Future[None] = self._loop.create_future()
        self._asked.append((decide, waiting))
        self._turn.set()
        return waiting

    # --- the tasks

    async def _keep_bus(self) -> None:
        """Be connected to the system bus, again and again."""
        backoff = Backoff(base_s=0.5, cap_s=10.0)
        while True:
            began_s = self._loop.time()
            try:
                await self._bluez.run()
            except Unreachable as error:
                self._bluez.lost(str(error))
            if self._loop.time() - began_s > backoff.cap_s:
                backoff.stable()
            await asyncio.sleep(backoff.next_s())

    async def _supervise(self) -> None:
        await self._turn.wait()  # for the first look at the bus
        while True:
            self._turn.clear()
            try:
                await self._take_turn()
            except Exception as error:
                self._turn.set()
                self.supervisor.failed(f"an error that is not ours: {shown(error)}", self._loop.time())  # if it was starting
                raise
            with contextlib.suppress(TimeoutError):
                deadlines_s = (self.supervisor.deadline_s, self._announcements.deadline_s)
                async with asyncio.timeout_at(min((each for each in deadlines_s if each is not None), default=None)):
                    await self._turn.wait()

    async def _take_turn(self) -> None:
        """What is seen, what was asked for, what is due."""
        supervisor = self.supervisor
        await self._perform(supervisor.seen(self._bluez.world, self._loop.time()))
        while self._asked:
            decide, waiting = self._asked.popleft()
            try:
                await self._perform(decide())
            finally:
                if not waiting.done():
                    waiting.set_result(None)
        await self._perform(supervisor.tick(self._loop.time()))
        self._say()
        self._changed()

    def _say(self) -> None:
        """Log what is wrong now, or that nothing is any more."""
        supervisor = self.supervisor
        restarting = supervisor.phase in (Phase.NO_DAEMON, Phase.NO_ADAPTER)
        if not self._announcements.changed(supervisor.problem, supervisor.action, self._loop.time(), restarting=restarting):
            return
        if supervisor.problem is None:
            _log.info("Bluetooth: scanning with %s", self.adapter)
        else:
            _log.warning("Bluetooth: %s; %s", supervisor.problem, supervisor.action)

    # --- what is done

    async def _perform(self, effects: list[Effect]) -> None:
        supervisor = self.supervisor
        todo = deque(effects)
        if todo:
            self._say()
        while todo:
            effect = todo.popleft()
            _log.debug("Bluetooth: %s", effect)
            match effect:
                case Effect.DROP_SCANNER:
                    await self._drop_scanner()
                case Effect.RENEW:
                    await renew()
                    self._renewed()
                case Effect.CLOSE_STALE:
                    await self._close_stale()
                case Effect.START:
                    why = await self._start_scanner()
                    now_s = self._loop.time()
                    todo.extend(supervisor.started(now_s) if why is None else supervisor.failed(why, now_s))
                case Effect.LOOK:
                    await self._bluez.look()
                case Effect.POWER_ON:
                    await self._power(on=True)
                case Effect.POWER_CYCLE:
                    await self._power(on=False)
                    await self._power(on=True)

    async def _start_scanner(self) -> str | None:
        """Why it does not start, if it does not."""
        await self._drop_scanner()
        scanner: BleakScanner

        def heard(device: BLEDevice, data: AdvertisementData) -> None:
            if scanner is self._scanner and data.rssi != NO_RSSI:
                before = self.supervisor.problem
                self.supervisor.heard(self._loop.time())
                if self.supervisor.problem != before:
                    self._turn.set()  # to say so
                self._heard(device, data)

        scanner = BleakScanner(heard, bluez={"adapter": self.adapter, "filters": {"DuplicateData": True}})
        self._scanner = scanner
        try:
            async with asyncio.timeout(START_LIMIT_S):
                await scanner.start()
        except BLUEZ_ERRORS as error:
            self._scanner = None
            return f"{self.adapter} does not scan: {shown(error)}"
        return None

    async def _drop_scanner(self) -> None:
        """Stop it. One that is dead answers with all kinds of errors, or not at all."""
        scanner, self._scanner = self._scanner, None
        if scanner is not None:
            await leave_dead_bus()
            with contextlib.suppress(*BLUEZ_ERRORS):
                async with asyncio.timeout(STOP_LIMIT_S):
                    await scanner.stop()

    async def _close_stale(self) -> None:
        """End the links that BlueZ has kept from a run that died, or from before `RENEW`: it does not find such devices."""
        for address in self._ours:
            with contextlib.suppress(*BLUEZ_ERRORS):
                async with asyncio.timeout(STOP_LIMIT_S):
                    await get_global_bluez_manager()  # after `RENEW` it knows nothing before somebody asks for it so
                    device = await get_device(address)
                    if device is not None and await get_connected_devices(device):
                        self._counters.stale_links += 1
                        await close_stale_connections(device)

    async def _power(self, *, on: bool) -> None:
        try:
            await self._bluez.power(self.adapter, on=on)
        except Unreachable as error:
            why = f"{self.adapter} cannot be switched {'on' if on else 'off'}: {error}"
            if why != self._refused and self.supervisor.world.blocked is None:  # what blocks it was said as the problem
                _log.warning("Bluetooth: %s", why)
            self._refused = why
        else:
            self._refused = ""


def shown(error: BaseException) -> str:
    """An error in one line, in words: neither a time limit nor an ATT error says anything by itself."""
    if isinstance(error, TimeoutError) and not str(error):
        return "no answer in time"
    if isinstance(error, BleakGATTProtocolError):
        return str(error.args[1]).removeprefix("GATT Protocol Error: ")
    return " ".join((str(error) or type(error).__name__).split())


async def _unending(run: Callable[[], Awaitable[None]]) -> None:
    """What heals the radio must not end by an error that nobody thought of."""
    while True:
        try:
            await run()
        except Exception:  # noqa: BLE001 - whatever it is, the radio must go on healing
            _log.exception("Bluetooth: an error that is not ours; beginning again")
        await asyncio.sleep(_AGAIN_S)
