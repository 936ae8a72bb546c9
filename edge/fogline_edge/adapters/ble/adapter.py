"""The Bluetooth adapter: radio, roster, links and commands, wired."""

import asyncio
import logging
from dataclasses import asdict

from bleak.backends.device import BLEDevice
from bleak.backends.scanner import AdvertisementData

from fogline.errors import Poison, SlowDown
from fogline.event import Arrival, Receipt, rfc3339
from fogline.rates import DeviceRates
from fogline_edge.adapters.ble.counters import Counters
from fogline_edge.adapters.ble.heard import advertisement_of
from fogline_edge.adapters.ble.intake import of_advertisement, of_value
from fogline_edge.adapters.ble.link import Link
from fogline_edge.adapters.ble.listing import READS_MISSED, read_settings
from fogline_edge.adapters.ble.radio import Radio
from fogline_edge.adapters.ble.roster import Known, Roster
from fogline_edge.adapters.ble.state import STATE_KEY, BleState, DeviceState, encode_state
from fogline_edge.adapters.ble.supervisor import Limits, Supervisor
from fogline_edge.adapters.ble.writing import Writing
from fogline_edge.adapters.port import Commands, Port
from fogline_edge.boot import SYSTEM, Clock
from fogline_edge.settings import BleSettings

MAX_DEVICES_SHOWN = 200
_log = logging.getLogger(__name__)


class BleAdapter:
    """Puts what Bluetooth devices say into `port`, and carries commands to those that are connected to.

    `counters` may be read at any time. Without Bluetooth it says so once and looks again and again. Raises
    `Misconfigured` for profiles and devices that make no sense.
    """

    def __init__(self, port: Port, settings: BleSettings, commands: Commands | None = None, clock: Clock = SYSTEM) -> None:
        self.counters = Counters()
        self._port = port
        self._settings = settings
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        profiles, listed = read_settings(settings)
        self._roster = Roster(listed, profiles, settings.max_devices, self._loop.time(), settings.silence_s / 2)
        limits = Limits(settings.silence_s, settings.power_on_s if settings.power_on else None, settings.adapter)
        self._supervisor = Supervisor(limits)
        self._rates = DeviceRates(settings.device_events_s, settings.device_burst)
        connects = [each for each in self._roster.listed.values() if each.profile.connects]
        self._radio = Radio(
            self._supervisor,
            ours=[each.address for each in connects],
            heard=self._heard,
            renewed=self._renewed,
            changed=self._radio_changed,
            counters=self.counters,
        )
        self._writing = Writing(commands, self.counters)
        self._links = {
            each.address: Link(
                each,
                settings,
                radio=self._radio,
                writing=self._writing,
                alive=self._alive,
                ended=self._ended,
                value=self._value,
                counters=self.counters,
            )
            for each in connects
        }
        self._said: object = None
        self._state_waits = self._state_due = False
        self._refused: set[str] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    async def start(self) -> None:
        """Begin. Nothing has to be there yet."""
        self._radio.start()
        for link in self._links.values():
            link.start()
        self._look_around()

    async def close(self) -> None:
        """Disconnect and stop scanning. Safe to call twice."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        await asyncio.gather(*(link.close() for link in self._links.values()))
        await self._writing.close()
        await self._radio.close()

    # --- what is heard

    def _heard(self, device: BLEDevice, data: AdvertisementData) -> None:
        self.counters.heard += 1
        now_s = self._loop.time()
        address = device.address.upper()
        link = self._links.get(address)
        if link is not None:
            link.seen(device)
        advertisement = advertisement_of(data)
        try:
            known = self._roster.hear(address, advertisement, data.rssi, now_s)
            arrival = of_advertisement(known, advertisement, self._radio.adapter) if known is not None else None
        except OverflowError:
            self.counters.crowded += 1
        except Poison as error:
            self.counters.unreadable += 1
            _log.debug("an advertisement of %s: %s", address, error)
        else:
            if known is not None and link is None and self._roster.is_steady(known, now_s):
                self._supervisor.near(now_s)
            if arrival is not None:
                self.counters.taken += 1
                self._put(arrival)

    def _renewed(self) -> None:
        for link in self._links.values():
            link.lost()

    def _alive(self, known: Known) -> None:
        """A connected device said something, news or not."""
        now_s = self._loop.time()
        self._roster.lives(known.address, now_s)
        lasts_s = READS_MISSED * known.profile.shortest_read_s or known.silence_s or 0.0
        self._supervisor.link_lives(known.address, now_s, lasts_s)

    def _ended(self, known: Known) -> None:
        self._supervisor.link_ended(known.address)

    def _value(self, known: Known, characteristic: str, value: bytes) -> None:
        """A connected device said something new."""
        self.counters.values += 1
        self._put(of_value(known, characteristic, value, self._radio.adapter))

    def _put(self, arrival: Arrival) -> None:
        now_s = self._loop.time()
        if not self._rates.bucket(arrival.device, now_s).take(now_s):
            self.counters.limited += 1
            return
        try:
            self._port.put(arrival, self._committed)
        except SlowDown:
            self.counters.slowed += 1

    def _committed(self, receipt: Receipt) -> None:
        setattr(self.counters, receipt, getattr(self.counters, receipt) + 1)

    # --- what is said of it

    def _look_around(self) -> None:
        """Who has fallen silent; and, now and then, how it goes."""
        self._timer = self._loop.call_later(self._settings.status_s, self._look_around)
        now_s = self._loop.time()
        unasked = {address for address, link in self._links.items() if link.unasked}
        for address in unasked:
            self._supervisor.link_lives(address, now_s, 2 * self._settings.status_s)
        for known in self._roster.fall_silent(now_s, unasked):
            self.counters.silent += 1
            self._supervisor.missed()
            _log.warning("Bluetooth: %s (%s) has said nothing for %.0f s", known.device, known.address, known.silence_s)
            link = self._links.get(known.address)
            if link is not None:
                link.renew()
        for known in self._roster.listed.values():
            if known.refused is not None and known.address not in self._refused:
                self._refused.add(known.address)
                _log.warning("Bluetooth: %s is not connected to, and not taken: %s", known.address, known.refused)
        self._say_state()

    def _radio_changed(self) -> None:
        supervisor = self._supervisor
        said = (supervisor.phase, supervisor.problem, asdict(supervisor.steps))
        if said != self._said and not self._closed:
            self._said = said
            self._say_state()

    def _say_state(self) -> None:
        """Keep the state; while the last one waits for the disk, no other is added."""
        if self._state_waits:
            self._state_due = True
            return
        self._state_waits, self._state_due = True, False
        self._port.keep(STATE_KEY, encode_state(self.state()), self._state_kept)

    def _state_kept(self) -> None:
        self._state_waits = False
        if self._state_due and not self._closed:
            self._say_state()

    def state(self) -> BleState:
        """How it goes."""
        supervisor, now_s = self._supervisor, self._loop.time()
        shown = [*self._roster.listed.values(), *reversed(self._roster.others.values())][:MAX_DEVICES_SHOWN]
        return BleState(
            at=rfc3339(self._clock.time_ns()),
            phase=supervisor.phase.value,
            adapter=supervisor.world.adapter,
            problem=supervisor.problem,
            steps=asdict(supervisor.steps),
            counters=asdict(self.counters),
            devices=[self._state_of(each, now_s) for each in shown],
        )

    def _state_of(self, known: Known, now_s: float) -> DeviceState:
        link = self._links.get(known.address)
        return DeviceState(
            device=known.device,
            address=known.address,
            profile=known.profile.name,
            heard_s=None if known.heard_s is None else round(now_s - known.heard_s, 1),
            rssi=known.rssi,
            silent=known.silent,
            link=None if link is None else link.state.value,
            problem=_problem_of(known) or (None if link is None else link.problem),
        )


def _problem_of(known: Known) -> str | None:
    return known.refused if known.named or known.refused else "what names it has not been heard yet"
