"""`org.bluez.Adapter1` of the stand-in: power, discovery for each client of the bus, and passive scans."""

import asyncio
from collections import Counter
from collections.abc import Set as AbstractSet
from enum import StrEnum
from typing import Any

from dbus_fast import Variant

from fogline_lab.ble.central import Central
from fogline_lab.ble.controller import Air
from fogline_lab.ble.device_cache import DeviceCache
from fogline_lab.ble.gatt import Links
from fogline_lab.ble.monitors import Monitors
from fogline_lab.ble.objects import BLUEZ_ERROR, HCI, DBusFailure, Objects

ADAPTER = "org.bluez.Adapter1"
FLAP_EVERY_S, FLAP_S = 10.0, 0.1


class Stuck(StrEnum):
    """Event after which a stuck radio receives again."""

    SCANNER = "scanner"
    ADAPTER = "adapter"


class Adapter1:
    """The adapter `hci0`: a central on `air` with the address `radio`.

    It does not receive the addresses in `out_of_reach`. `deaf`, `stuck`, `one_stop_stops_all` and `flap_every_s` are faults
    (see `bluez`). `swallowed` counts lost advertisements by address. `flaps` counts changes of `Discovering`.
    """

    def __init__(self, air: Air, objects: Objects, links: Links, *, radio: str, out_of_reach: AbstractSet[str]) -> None:
        self.deaf = False
        self.stuck: Stuck | None = None
        self.swallowed: Counter[str] = Counter()
        self.one_stop_stops_all = False
        self.flap_every_s = FLAP_EVERY_S
        self.flaps = 0
        self.blocked = False
        self.devices = DeviceCache(objects, links, lambda: self.scanning or self.monitors.scanning)
        self.monitors = Monitors(objects)
        self._objects = objects
        self._links = links
        self.radio = Central(air, radio, self._on_advertisement)
        self._out_of_reach = out_of_reach
        self._duplicates: dict[str, bool] = {}
        self._scanners: set[str] = set()

    @property
    def scanning(self) -> bool:
        """True while any client scans actively."""
        return bool(self._scanners)

    def add(self, *, powered: bool) -> None:
        """Publish the adapter on the bus."""
        properties = {
            "Address": Variant("s", self.radio.address),
            "Name": Variant("s", "fogline"),
            "Alias": Variant("s", "fogline"),
            "Powered": Variant("b", powered and not self.blocked),
            "Discovering": Variant("b", False),
            "Roles": Variant("as", ["central", "peripheral"]),
            "Class": Variant("u", 0),
            "UUIDs": Variant("as", []),
        }
        self._objects.add(HCI, ADAPTER, properties)
        self.monitors.add_manager()

    async def remove(self) -> None:
        """End all connections and discovery, and take the adapter off the bus."""
        await self._links.drop_all()
        self._scanners.clear()
        self.monitors.clear()
        await self._scan()
        self._objects.remove(HCI)
        self.devices.clear()

    async def power(self, *, on: bool) -> None:
        """Switch the adapter on or off. Off ends every running scan, and no client gets an error."""
        if not on:
            await self._links.drop_all()
            self._scanners.clear()
            self.monitors.clear()
            await self._scan()
            self._set_discovering(discovering=False)
        elif self.stuck is Stuck.ADAPTER:
            self.stuck = None
        self._objects.change(HCI, ADAPTER, {"Powered": Variant("b", on)})

    async def block(self, *, blocked: bool) -> None:
        """Do as `rfkill block bluetooth` or `unblock`."""
        self.blocked = blocked
        # the reason goes first: a client that reads only one of the two signals must not take the adapter for switched off
        self._objects.change(HCI, ADAPTER, {"PowerState": Variant("s", "off-blocked" if blocked else "off")})
        if blocked:
            await self.power(on=False)

    def check_power(self) -> None:
        """Raises `DBusFailure` if the adapter is off."""
        if not self._objects.get(HCI, ADAPTER, "Powered"):
            raise DBusFailure(BLUEZ_ERROR + "NotReady", "Resource Not Ready")

    async def exported(self, sender: str, path: str, interfaces: dict[str, dict[str, Variant]]) -> None:
        """Scan passively for a monitor that a client has exported."""
        if self.stuck is Stuck.SCANNER:
            self.stuck = None
        self.monitors.exported(sender, path, interfaces)
        await self._scan()

    async def call(self, member: str, sender: str, body: list[Any]) -> None:
        """Perform a method of the adapter's interfaces. Raises `DBusFailure`."""
        match member:
            case "SetDiscoveryFilter":
                wanted = body[0].get("DuplicateData")
                self._duplicates[sender] = bool(wanted and wanted.value)
            case "StartDiscovery":
                await self._start_discovery(sender)
            case "StopDiscovery":
                self.check_power()
                if sender not in self._scanners:
                    raise DBusFailure(BLUEZ_ERROR + "Failed", "No discovery started")
                await self.stop_discovery(sender)
            case "RegisterMonitor" | "UnregisterMonitor":
                self.check_power()
                self.monitors.call(member, sender, body[0])
                await self._scan()
            case "RemoveDevice":
                await self._links.drop(body[0])
                self._objects.remove(body[0])
            case _:
                raise DBusFailure("org.freedesktop.DBus.Error.UnknownMethod", member)

    async def stop_discovery(self, owner: str) -> None:
        """End the discovery of one client. No effect for a client without one."""
        if owner not in self._scanners:
            await self._scan()
            return
        self._scanners.discard(owner)
        self._duplicates.pop(owner, None)
        if self._scanners and not self.one_stop_stops_all:
            return
        await self._scan(stop=True)
        self._set_discovering(discovering=False)
        if self._scanners:
            return  # BlueZ 5.82 believes that it still scans for the others
        self.devices.forget_rssi()

    async def flap(self) -> None:
        """Let `Discovering` flap periodically. Never returns."""
        while True:
            await asyncio.sleep(self.flap_every_s)
            if self.radio.scans_actively:
                self._set_discovering(discovering=False)
                await asyncio.sleep(FLAP_S)
                self._set_discovering(discovering=bool(self.radio.scans_actively))
                self.flaps += 1

    def _on_advertisement(self, advertisement: Any) -> None:
        address = advertisement.address.to_string(False)
        if self.deaf or self.stuck is not None or not (self._scanners or self.monitors.scanning):
            self.swallowed[address] += 1
        elif address in self._out_of_reach:
            return
        elif self._scanners:
            self.devices.receive(advertisement, duplicates=any(self._duplicates.values()))
        elif self.monitors.reports(address, bytes(advertisement.data_bytes)):
            self.devices.receive_passively(advertisement)

    async def _start_discovery(self, sender: str) -> None:
        self.check_power()
        if sender in self._scanners:
            raise DBusFailure(BLUEZ_ERROR + "InProgress", "Operation already in progress")
        if self.stuck is Stuck.SCANNER:
            self.stuck = None
        self._scanners.add(sender)
        await self._scan()
        self._set_discovering(discovering=True)

    async def _scan(self, *, stop: bool = False) -> None:
        """Scan actively for clients that discover, else passively for monitors. `stop`: no client discovers any more."""
        await self.radio.scan(actively=True if self._scanners and not stop else False if self.monitors.scanning else None)

    def _set_discovering(self, *, discovering: bool) -> None:
        self._objects.change(HCI, ADAPTER, {"Discovering": Variant("b", discovering)})
