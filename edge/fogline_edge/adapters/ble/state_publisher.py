"""Publishes the adapter's state for `fogline-edge status`, at most one write at a time."""

import asyncio
from collections.abc import Mapping
from dataclasses import asdict, dataclass

import msgspec

from fogline.events.event import rfc3339
from fogline_edge.adapters.ble.counters import BleCounters
from fogline_edge.adapters.ble.gatt.link import DeviceLink
from fogline_edge.adapters.ble.roster import KnownDevice, Roster
from fogline_edge.adapters.ble.state import STATE_KEY, BleState, DeviceState
from fogline_edge.adapters.ble.supervision.outages import OutageLog
from fogline_edge.adapters.ble.supervision.supervisor import Supervisor
from fogline_edge.adapters.port import Port
from fogline_edge.machine.boot import Clock

MAX_DEVICES_SHOWN = 200


@dataclass(eq=False)
class BleStatePublisher:
    """Keeps the state in `port`. While a write waits for the disk, later ones are merged into one."""

    port: Port
    supervisor: Supervisor
    roster: Roster
    links: Mapping[str, DeviceLink]
    counters: BleCounters
    clock: Clock
    outages: OutageLog
    _published: object = None
    _writing: bool = False
    _again: bool = False
    _closed: bool = False

    def close(self) -> None:
        """Publish no further changes."""
        self._closed = True

    def publish_change(self) -> None:
        """Publish if the phase, the problem or the steps have changed since the last call."""
        supervisor, now_s = self.supervisor, asyncio.get_running_loop().time()
        self.outages.observe(supervisor.problem, supervisor.phase, rfc3339(self.clock.time_ns()), now_s)
        shown = (supervisor.phase, supervisor.problem, supervisor.scan, asdict(supervisor.steps))
        if shown != self._published and not self._closed:
            self._published = shown
            self.publish()

    def publish(self) -> None:
        """Publish the present state."""
        if self._writing:
            self._again = True
            return
        self._writing, self._again = True, False
        self.port.keep(STATE_KEY, msgspec.json.encode(self._state()), self._written)

    def _written(self) -> None:
        self._writing = False
        if self._again and not self._closed:
            self.publish()

    def _state(self) -> BleState:
        supervisor, now_s = self.supervisor, asyncio.get_running_loop().time()
        shown = [*self.roster.listed.values(), *reversed(self.roster.others.values())][:MAX_DEVICES_SHOWN]
        return BleState(
            at=rfc3339(self.clock.time_ns()),
            phase=supervisor.phase.value,
            adapter=supervisor.bluez.adapter,
            problem=supervisor.problem,
            steps=asdict(supervisor.steps),
            counters=asdict(self.counters),
            outage=self.outages.present,
            earlier=self.outages.ended,
            devices=[self._state_of(each, now_s) for each in shown],
            scan=supervisor.scan.mode,
            scan_reason=supervisor.scan.why,
        )

    def _state_of(self, known: KnownDevice, now_s: float) -> DeviceState:
        link = self.links.get(known.address)
        unnamed = None if known.named else "no advertisement that names it was received yet"
        return DeviceState(
            device=known.device,
            address=known.address,
            profile=known.profile.name,
            heard_s=None if known.received_s is None else round(now_s - known.received_s, 1),
            rssi=known.rssi,
            silent=known.silent,
            link=None if link is None else link.state.value,
            problem=known.refused or unnamed or (None if link is None else link.problem),
        )
