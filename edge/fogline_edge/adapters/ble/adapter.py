"""The Bluetooth adapter: composition of radio, roster, links and commands, and the path of data to the port."""

import asyncio
import logging

from bleak.backends.device import BLEDevice

from fogline.advertisement import Advertisement
from fogline.errors import Poison, SlowDown
from fogline.events.event import Arrival, Receipt
from fogline.process.rates import DeviceRates
from fogline_edge.adapters.ble.counters import BleCounters
from fogline_edge.adapters.ble.gatt.commands import GattCommands
from fogline_edge.adapters.ble.gatt.link import DeviceLink
from fogline_edge.adapters.ble.intake import of_advertisement, of_value
from fogline_edge.adapters.ble.radio.bleak_manager import ignore_dead_bus
from fogline_edge.adapters.ble.radio.radio import Radio
from fogline_edge.adapters.ble.roster import READS_MISSED, KnownDevice, Roster, read_settings
from fogline_edge.adapters.ble.state import STATE_KEY, kept_outages
from fogline_edge.adapters.ble.state_publisher import BleStatePublisher
from fogline_edge.adapters.ble.supervision.outages import OutageLog
from fogline_edge.adapters.ble.supervision.scan_mode import ScanChoice
from fogline_edge.adapters.ble.supervision.supervisor import RadioTimeouts, Supervisor
from fogline_edge.adapters.port import CommandPort, Port
from fogline_edge.ble_settings import BleSettings
from fogline_edge.machine.boot import SYSTEM, Clock
from fogline_edge.profiles.ble_scan import passive_patterns, reason_for_active

_log = logging.getLogger(__name__)


class BleAdapter:
    """Puts advertisements and values into `port`, and carries commands to connected devices.

    Without Bluetooth it logs the reason once and keeps trying. Raises `Misconfigured` for invalid profiles and devices.
    """

    def __init__(self, port: Port, settings: BleSettings, commands: CommandPort | None = None, clock: Clock = SYSTEM) -> None:
        self.counters = BleCounters()
        self._port = port
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        profiles, listed = read_settings(settings)
        self._roster = Roster(listed, profiles, settings.max_devices, self._loop.time(), settings.silence_s / 2)
        timeouts = RadioTimeouts(settings.silence_s, settings.power_on_s if settings.power_on else None, settings.adapter)
        used = [*profiles, *(each.profile for each in listed)]
        self._supervisor = Supervisor(timeouts, ScanChoice(settings.scan, reason_for_active(used, settings.scan)))
        self.steps, self.scan = self._supervisor.steps, self._supervisor.meter
        self._rates = DeviceRates(settings.device_events_s, settings.device_burst)
        self._links: dict[str, DeviceLink] = {}
        outages = OutageLog(self._supervisor.problem, kept_outages(port.kept(STATE_KEY).get(STATE_KEY)))
        self._publisher = BleStatePublisher(
            port, self._supervisor, self._roster, self._links, self.counters, clock, outages=outages
        )
        connects = [each for each in self._roster.listed.values() if each.profile.connects]
        self._radio = Radio(
            self._supervisor,
            ours=[each.address for each in connects],
            on_advertisement=self._on_advertisement,
            on_renew=self._on_renew,
            on_turn=self._publisher.publish_change,
            counters=self.counters,
            patterns=passive_patterns(used),
        )
        self._commands = GattCommands(commands, self.counters)
        for each in connects:
            self._links[each.address] = DeviceLink(
                each, settings, self._radio.turns, self._commands, self._alive, self._ended, self._on_value, self.counters
            )
        self._refused: set[str] = set()
        self._timer: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Start. Neither the bus nor an adapter has to be there yet."""
        ignore_dead_bus()
        self._radio.start()
        for link in self._links.values():
            link.start()
        self._check_devices()

    async def close(self) -> None:
        """Disconnect and stop scanning. Safe to call twice."""
        self._publisher.close()
        if self._timer is not None:
            self._timer.cancel()
        await asyncio.gather(*(link.close() for link in self._links.values()))
        await self._commands.close()
        await self._radio.close()

    def _on_advertisement(self, device: BLEDevice, advertisement: Advertisement, rssi: int) -> None:
        self.counters.heard += 1
        now_s = self._loop.time()
        address = device.address.upper()
        link = self._links.get(address)
        if link is not None:
            link.received(device)
        try:
            known = self._roster.receive(address, advertisement, rssi, now_s)
            arrival = of_advertisement(known, advertisement, self._radio.adapter) if known is not None else None
        except OverflowError:
            self.counters.crowded += 1
        except Poison as error:
            self.counters.unreadable += 1
            _log.debug("an advertisement of %s: %s", address, error)
        else:
            if known is not None and link is None and self._roster.is_steady(known, now_s):
                self._supervisor.ladder.near(now_s)
            if arrival is not None:
                self.counters.taken += 1
                if self._supervisor.scan.passive and arrival.report is not None and arrival.report.pause_s is not None:
                    self._radio.scan_actively(f"{address} sends presses without a packet id, and BlueZ reports equal ones once")
                self._put(arrival)

    def _on_renew(self) -> None:
        for link in self._links.values():
            link.lost()

    def _alive(self, known: KnownDevice) -> None:
        """Note a sign of life of a connected device, whether it becomes an event or not."""
        now_s = self._loop.time()
        self._roster.alive(known.address, now_s)
        lasts_s = READS_MISSED * known.profile.shortest_read_s or known.silence_s or 0.0
        self._supervisor.ladder.link_alive(known.address, now_s, lasts_s)

    def _ended(self, known: KnownDevice) -> None:
        self._supervisor.ladder.link_ended(known.address)

    def _on_value(self, known: KnownDevice, characteristic: str, value: bytes) -> None:
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

    def _check_devices(self) -> None:
        """Renew the links of devices that have fallen silent, warn of refused names, and publish the state. Periodic."""
        self._timer = self._loop.call_later(self._settings.status_s, self._check_devices)
        now_s = self._loop.time()
        may_be_silent = {address for address, link in self._links.items() if link.may_be_silent}
        for address in may_be_silent:
            self._supervisor.ladder.link_alive(address, now_s, 2 * self._settings.status_s)
        for known in self._roster.newly_silent(now_s, may_be_silent):
            self.counters.silent += 1
            self._supervisor.ladder.device_silent()
            text, extra = "Bluetooth: %s (%s) has been silent for %.0f s", {"device": known.device, "reason": "silent"}
            _log.warning(text, known.device, known.address, known.silence_s, extra=extra)
            link = self._links.get(known.address)
            if link is not None:
                link.renew()
        for known in self._roster.listed.values():
            if known.refused is not None and known.address not in self._refused:
                self._refused.add(known.address)
                extra = {"device": known.device, "reason": "ignored"}
                _log.warning("Bluetooth: %s is ignored: %s", known.address, known.refused, extra=extra)
        self._publisher.publish()
