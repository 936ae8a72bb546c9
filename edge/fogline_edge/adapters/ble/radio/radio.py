"""Driver of one Bluetooth adapter: performs the supervisor's effects in order, and reports the results to it."""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from bleak.backends.device import BLEDevice

from fogline.advertisement import Advertisement
from fogline.amqp.backoff import Backoff
from fogline.errors import Unreachable
from fogline.process.cancellation import end_tasks
from fogline_edge.adapters.ble.counters import BleCounters
from fogline_edge.adapters.ble.radio.bleak_manager import close_stale_links, error_text, renew
from fogline_edge.adapters.ble.radio.bluez import Bluez
from fogline_edge.adapters.ble.radio.connect_attempt import ConnectTurns
from fogline_edge.adapters.ble.radio.scanner import OnAdvertisement, Scanner
from fogline_edge.adapters.ble.supervision.bluez_state import ProblemLog, RadioPhase
from fogline_edge.adapters.ble.supervision.scan_mode import Scan
from fogline_edge.adapters.ble.supervision.supervisor import Effect, Supervisor
from fogline_edge.profiles.ble_scan import Pattern

_AGAIN_S = 1.0
_log = logging.getLogger(__name__)


@dataclass(eq=False)
class Radio:
    """Runs one adapter. Calls `on_renew` when known devices and connections become void, `on_turn` after a supervisor's turn.

    `ours`: addresses of the devices to connect to; stale connections to them are closed. `patterns`: see `Scanner`.
    """

    supervisor: Supervisor
    ours: Sequence[str]
    on_advertisement: OnAdvertisement
    on_renew: Callable[[], None]
    on_turn: Callable[[], None]
    counters: BleCounters
    patterns: Sequence[Pattern] = ()

    def __post_init__(self) -> None:
        self.turns = ConnectTurns(self.supervisor, self._ask)
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._asked: deque[tuple[Callable[[], list[Effect]], asyncio.Future[None]]] = deque()
        self._problem_log = ProblemLog(self.supervisor.problem, self.supervisor.action)
        self._power_error = ""
        self._scanner = Scanner(self._received, self.patterns)
        self._logged_scan: Scan | None = None
        self._bluez = Bluez(self.supervisor.limits.wanted, self._wake.set)
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start the tasks. They wait for a bus, a daemon and an adapter as long as it takes."""
        logging.getLogger("bleak").setLevel(logging.ERROR)  # this module logs the same, once and in plain words
        for name, run in (("ble bus", self._keep_bus), ("ble supervisor", self._supervise)):
            self._tasks.append(self._loop.create_task(_unending(run), name=name))

    async def close(self) -> None:
        """Stop scanning. Safe to call twice."""
        tasks, self._tasks = self._tasks, []
        await end_tasks(*tasks)
        for _, waiting in self._asked:
            waiting.cancel()
        await self._scanner.stop()
        await renew()

    @property
    def adapter(self) -> str:
        """Name of the adapter in use, empty if there is none."""
        return self.supervisor.bluez.adapter or ""

    def scan_actively(self, why: str) -> None:
        """Scan actively from the next turn on, for the reason `why`."""
        self.supervisor.choice.insufficient(why)
        self._wake.set()

    def _ask(self, decide: Callable[[], list[Effect]]) -> asyncio.Future[None]:
        waiting: asyncio.Future[None] = self._loop.create_future()
        self._asked.append((decide, waiting))
        self._wake.set()
        return waiting

    def _received(self, device: BLEDevice, advertisement: Advertisement, rssi: int) -> None:
        before = self.supervisor.problem
        self.supervisor.received(self._loop.time())
        if self.supervisor.problem != before:
            self._wake.set()  # to log it
        self.on_advertisement(device, advertisement, rssi)

    async def _keep_bus(self) -> None:
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
        await self._wake.wait()  # for the first look at the bus
        while True:
            self._wake.clear()
            try:
                await self._take_turn()
            except Exception as error:
                self._wake.set()
                # STARTING has no deadline: without `failed`, an error during a start would be final
                self.supervisor.failed(f"unexpected error: {error_text(error)}", self._loop.time())
                raise
            with contextlib.suppress(TimeoutError):
                deadlines_s = (self.supervisor.deadline_s, self._problem_log.deadline_s)
                async with asyncio.timeout_at(min((each for each in deadlines_s if each is not None), default=None)):
                    await self._wake.wait()

    async def _take_turn(self) -> None:
        supervisor = self.supervisor
        await self._perform(supervisor.observe(self._bluez.state, self._loop.time()))
        while self._asked:
            decide, waiting = self._asked.popleft()
            try:
                await self._perform(decide())
            finally:
                if not waiting.done():
                    waiting.set_result(None)
        await self._perform(supervisor.tick(self._loop.time()))
        self._log_problem()
        self.on_turn()

    def _log_problem(self) -> None:
        supervisor = self.supervisor
        restarting = supervisor.phase in (RadioPhase.NO_DAEMON, RadioPhase.NO_ADAPTER)
        if not self._problem_log.is_due(supervisor.problem, supervisor.action, self._loop.time(), restarting=restarting):
            return
        if supervisor.problem is None:
            lasted_s = self._problem_log.lasted_s
            _log.info(
                "Bluetooth: scanning with %s, after %.0f s without", self.adapter, lasted_s, extra={"reason": "bluetooth"}
            )
        else:
            _log.warning("Bluetooth: %s; %s", supervisor.problem, supervisor.action, extra={"reason": "bluetooth"})

    async def _perform(self, effects: list[Effect]) -> None:
        supervisor = self.supervisor
        todo = deque(effects)
        if todo:
            self._log_problem()
        while todo:
            effect = todo.popleft()
            _log.debug("Bluetooth: %s", effect)
            match effect:
                case Effect.DROP_SCANNER:
                    await self._scanner.stop()
                case Effect.RENEW:
                    await renew()
                    self.on_renew()
                case Effect.CLOSE_STALE:
                    await close_stale_links(self.ours, self.counters)
                case Effect.START:
                    why = await self._scanner.start(self.adapter, supervisor.scan.mode)
                    self._log_scan(why)
                    now_s = self._loop.time()
                    todo.extend(supervisor.started(now_s) if why is None else supervisor.failed(why, now_s))
                case Effect.LOOK:
                    await self._bluez.look()
                case Effect.POWER_ON:
                    await self._power(on=True)
                case Effect.POWER_CYCLE:
                    await self._power(on=False)
                    await self._power(on=True)

    def _log_scan(self, why: str | None) -> None:
        """Log why the scan that has started is active or passive, if the reason is another one than before."""
        scan, asked = self.supervisor.scan, self.supervisor.choice.setting == "passive"
        if why is None and scan != self._logged_scan:
            level = logging.WARNING if asked and not scan.passive else logging.INFO
            extra = {"reason": f"scan-{scan.reason}"}
            _log.log(level, "Bluetooth: the scan is %s: %s", scan.mode, scan.why, extra=extra)
            self._logged_scan = scan

    async def _power(self, *, on: bool) -> None:
        try:
            await self._bluez.power(self.adapter, on=on)
        except Unreachable as error:
            why = f"{self.adapter} cannot be switched {'on' if on else 'off'}: {error}"
            if why != self._power_error and self.supervisor.bluez.blocked is None:  # rfkill is logged as the problem
                _log.warning("Bluetooth: %s", why)
            self._power_error = why
        else:
            self._power_error = ""


async def _unending(run: Callable[[], Awaitable[None]]) -> None:
    """Run a task again after any error: the tasks that repair the radio must never end."""
    while True:
        try:
            await run()
        except Exception:  # noqa: BLE001 - an unexpected error must not end the repairs
            _log.exception("Bluetooth: unexpected error; restarting the task", extra={"reason": "task-restarted"})
        await asyncio.sleep(_AGAIN_S)
