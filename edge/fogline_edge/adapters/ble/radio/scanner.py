"""The scanner. One per process, because BlueZ answers a second one with `InProgress`."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Literal

from bleak import BleakScanner
from bleak.args.bluez import BlueZScannerArgs, OrPattern
from bleak.assigned_numbers import AdvertisementDataType
from bleak.backends.device import BLEDevice
from bleak.backends.scanner import AdvertisementData

from fogline.advertisement import Advertisement
from fogline_edge.adapters.ble.radio.bleak_manager import BLUEZ_ERRORS, error_text, leave_dead_bus
from fogline_edge.profiles.ble_scan import Pattern

_START_LIMIT_S = 10.0
_STOP_LIMIT_S = 5.0
_NO_RSSI = -127  # bleak's RSSI for a change of the device's other properties: nothing was received over the air

OnAdvertisement = Callable[[BLEDevice, Advertisement, int], None]
"""Called with the device, all of its advertised data so far, and the RSSI in dBm."""


class Scanner:
    """Calls `on_advertisement` for each advertisement while it runs. `patterns`: of those that a passive scan reports."""

    def __init__(self, on_advertisement: OnAdvertisement, patterns: Sequence[Pattern] = ()) -> None:
        self._on_advertisement = on_advertisement
        self._patterns = [OrPattern(position, AdvertisementDataType(kind), data) for position, kind, data in patterns]
        self._scanner: BleakScanner | None = None

    async def start(self, adapter: str, mode: Literal["active", "passive"] = "active") -> str | None:
        """Start scanning, in place of the former scan. Returns the reason in one line if that fails."""
        await self.stop()
        scanner: BleakScanner

        def received(device: BLEDevice, data: AdvertisementData) -> None:
            if scanner is self._scanner and data.rssi != _NO_RSSI:
                self._on_advertisement(device, _advertisement_of(data), data.rssi)

        # without DuplicateData, BlueZ 5.82 lost 10 of 40 changing payloads, in holes of 6 s
        filters: BlueZScannerArgs = {"adapter": adapter, "filters": {"DuplicateData": True}, "or_patterns": [*self._patterns]}
        scanner = BleakScanner(received, scanning_mode=mode, bluez=filters)
        self._scanner = scanner
        try:
            async with asyncio.timeout(_START_LIMIT_S):
                await scanner.start()
        except BLUEZ_ERRORS as error:
            self._scanner = None
            return f"{adapter} does not scan: {error_text(error)}"
        return None

    async def stop(self) -> None:
        """Stop scanning. A dead scanner raises many kinds of errors or does not answer; both are ignored."""
        scanner, self._scanner = self._scanner, None
        if scanner is not None:
            await leave_dead_bus()
            with contextlib.suppress(*BLUEZ_ERRORS):
                async with asyncio.timeout(_STOP_LIMIT_S):
                    await scanner.stop()


def _advertisement_of(data: AdvertisementData) -> Advertisement:
    return Advertisement(
        name=data.local_name,
        manufacturer=dict(data.manufacturer_data),
        service_data={uuid.lower(): body for uuid, body in data.service_data.items()},
        services=tuple(sorted({uuid.lower() for uuid in data.service_uuids})),
        tx_power=data.tx_power,
    )
