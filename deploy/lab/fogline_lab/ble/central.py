"""The radio of the stand-in: a central on the virtual air that scans actively or passively."""

from collections.abc import Callable
from typing import Any

from bumble.device import Device, DeviceConfiguration
from bumble.hci import Address

from fogline_lab.ble.controller import Air, RadioController


class Central:
    """A central with the address `address`. `device`: bumble's, after `open`. `on_advertisement`: gets each report."""

    device: Device

    def __init__(self, air: Air, address: str, on_advertisement: Callable[[Any], None]) -> None:
        self.address = address
        self._air = air
        self._on_advertisement = on_advertisement
        self._controller: RadioController | None = None

    async def open(self) -> None:
        """Power on the central, once."""
        if self._controller is None:
            controller = self._controller = RadioController("hci0", self._air)
            settings = DeviceConfiguration(name="hci0", address=Address(self.address))
            self.device = Device.from_config_with_hci(settings, controller, controller)
            await self.device.power_on()
            self.device.on("advertisement", self._on_advertisement)

    @property
    def scans_actively(self) -> bool | None:
        """True while it sends scan requests, False while it scans passively, None while it does not scan."""
        if self._controller is None or not self.device.is_scanning:
            return None
        return self._controller.le_scan_type == 1

    async def scan(self, *, actively: bool | None) -> None:
        """Scan actively, passively, or (`None`) not at all."""
        if self._controller is None or actively is self.scans_actively:
            return
        if self.device.is_scanning:
            await self.device.stop_scanning()
        if actively is not None:
            await self.device.start_scanning(active=actively, filter_duplicates=False)
