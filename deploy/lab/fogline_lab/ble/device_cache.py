"""`org.bluez.Device1` objects of the devices that the stand-in has received."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from dbus_fast import Variant

from fogline.advertisement import decode
from fogline.errors import Poison
from fogline_lab.ble.gatt import DEVICE, Links
from fogline_lab.ble.objects import HCI, Objects

HOLE_S = 6.0
"""Without the filter `DuplicateData`, BlueZ 5.82 reports nothing more of a device for about this time after a report."""
RSSI_STEP = 8
"""The least change of the signal strength that BlueZ reports (RSSI_THRESHOLD)."""
TEMPORARY_S = 30.0
"""BlueZ forgets a device that is not scanned for after this time (TemporaryTimeout)."""


class DeviceCache:
    """Adds and updates the objects, and removes old ones while `is_scanning` is False."""

    def __init__(self, objects: Objects, links: Links, is_scanning: Callable[[], bool]) -> None:
        self._is_scanning = is_scanning
        self._objects = objects
        self._links = links
        self._known: dict[str, dict[str, Any]] = {}
        self._reported_s: dict[str, float] = {}
        self._waiting: list[asyncio.Future[None]] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def receive(self, advertisement: Any, *, duplicates: bool) -> None:
        """Update the device's properties: advertised data is added to that of earlier advertisements."""
        address = advertisement.address.to_string(False)
        path = f"{HCI}/dev_{address.replace(':', '_')}"
        now_s = asyncio.get_running_loop().time()
        if not duplicates and now_s - self._reported_s.get(path, -HOLE_S) < HOLE_S:
            return
        self._reported_s[path] = now_s
        self._links.addresses[path] = advertisement.address
        known = self._known.setdefault(path, {})
        try:
            _learn(known, bytes(advertisement.data_bytes))
        except Poison:
            return
        properties = {**known, "RSSI": Variant("n", advertisement.rssi)}
        if path in self._objects.tree:
            self._objects.change(path, DEVICE, properties)
        else:
            self._objects.add(path, DEVICE, {**_new_device(address), **properties})
            task = asyncio.get_running_loop().create_task(self._expire(path))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        while self._waiting:
            waiting = self._waiting.pop()
            if not waiting.done():
                waiting.set_result(None)

    def receive_passively(self, advertisement: Any) -> None:
        """Update the device's properties as BlueZ does in passive scans: only if its data, or its signal strength, differs."""
        address = advertisement.address.to_string(False)
        path = f"{HCI}/dev_{address.replace(':', '_')}"
        known, rssi = self._known.get(path, {}), self._objects.tree.get(path, {}).get(DEVICE, {}).get("RSSI")
        after = dict(known)
        with contextlib.suppress(Poison):
            _learn(after, bytes(advertisement.data_bytes))
        same = {name: each.value for name, each in after.items()} == {name: each.value for name, each in known.items()}
        if rssi is None or not same or abs(advertisement.rssi - rssi.value) >= RSSI_STEP:
            self.receive(advertisement, duplicates=True)

    async def until_received(self) -> None:
        """Return after the next advertisement that was reported."""
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        await waiting

    def forget_rssi(self) -> None:
        """Remove every RSSI, as BlueZ does when discovery ends."""
        for path, interfaces in list(self._objects.tree.items()):
            if "RSSI" in interfaces.get(DEVICE, ()):
                self._objects.change(path, DEVICE, {}, ["RSSI"])

    def clear(self) -> None:
        """Forget all devices."""
        self._known.clear()
        self._reported_s.clear()

    def close(self) -> None:
        """End all tasks."""
        for task in self._tasks:
            task.cancel()

    async def _expire(self, path: str) -> None:
        while path in self._objects.tree:
            await asyncio.sleep(1)
            quiet_s = asyncio.get_running_loop().time() - self._reported_s.get(path, 0.0)
            if not self._is_scanning() and not self._links.uses(path) and quiet_s > TEMPORARY_S:
                self._objects.remove(path)
                self._known.pop(path, None)
                return


def _learn(known: dict[str, Any], data: bytes) -> None:
    """Add the data of an advertisement. Raises `Poison` if it is malformed."""
    said = decode(data)
    if said.name is not None:
        known["Name"] = known["Alias"] = Variant("s", said.name)
    if said.manufacturer:
        known["ManufacturerData"] = Variant("a{qv}", {key: Variant("ay", each) for key, each in said.manufacturer.items()})
    if said.service_data:
        known["ServiceData"] = Variant("a{sv}", {key: Variant("ay", each) for key, each in said.service_data.items()})
    if said.services:
        known["UUIDs"] = Variant("as", list(said.services))
    if said.tx_power is not None:
        known["TxPower"] = Variant("n", said.tx_power)


def _new_device(address: str) -> dict[str, Variant]:
    flags = {name: Variant("b", False) for name in ("Connected", "Paired", "Bonded", "Trusted", "Blocked", "ServicesResolved")}
    return {
        "Address": Variant("s", address),
        "AddressType": Variant("s", "random"),
        "Alias": Variant("s", address.replace(":", "-")),
        "Adapter": Variant("o", HCI),
        "UUIDs": Variant("as", []),
        **flags,
    }
