"""Devices of the settings, and devices that were received: bounded for any number of invented addresses. Pure."""

from collections import OrderedDict
from collections.abc import Container, Sequence
from dataclasses import dataclass

import msgspec

from fogline.advertisement import Advertisement
from fogline.errors import Misconfigured
from fogline.events.report_on_change import ReportPolicy
from fogline_edge.ble_settings import BleSettings
from fogline_edge.profiles.ble import BleProfile, device_of, fits, listed_name
from fogline_edge.profiles.ble_files import find_profiles

FORGOTTEN_S = 600.0
"""Time without an advertisement after which a device that is not listed makes room for another one."""
READS_MISSED = 2
"""The longest silence of a device that is read is at least this many of its shortest read interval."""


@dataclass(frozen=True, slots=True)
class ListedDevice:
    """A device of the settings. `silence_s`: its longest silence. `device`: its name, by default the one by the profile."""

    address: str
    profile: BleProfile
    silence_s: float
    report: ReportPolicy
    device: str | None = None


@dataclass(slots=True)
class KnownDevice:
    """A device that is listed or was received. `received_s`: time of its last sign of life, `None` if there was none.

    `silence_s`: its longest silence. `since_s`: silence before this time does not count. `named`: `device` is its name, not its
    address. `refused`: the reason why it cannot have its name. `steady_since_s`: since then it advertised without a long break.
    """

    address: str
    device: str
    profile: BleProfile
    report: ReportPolicy
    silence_s: float | None = None
    received_s: float | None = None
    since_s: float = 0.0
    rssi: int | None = None
    silent: bool = False
    named: bool = True
    refused: str | None = None
    steady_since_s: float = 0.0


class Roster:
    """Listed devices, and at most `most` others that fit one of `profiles`; the first that fits applies."""

    def __init__(
        self, listed: Sequence[ListedDevice], profiles: Sequence[BleProfile], most: int, now_s: float, steady_s: float = 10.0
    ) -> None:
        self._steady_s = steady_s
        self._profiles = tuple(profiles)
        self._reports = {each.name: report_of(each) for each in profiles}
        self._most = most
        self._listed = {each.address: each for each in listed}
        self.listed = {
            each.address: KnownDevice(
                each.address, each.address, each.profile, each.report, each.silence_s, since_s=now_s, named=False
            )
            for each in listed
        }
        for each in sorted(listed, key=lambda each: each.device is None):
            self._name(self.listed[each.address])
        self.others: OrderedDict[str, KnownDevice] = OrderedDict()

    def receive(self, address: str, advertisement: Advertisement, rssi: int | None, now_s: float) -> KnownDevice | None:
        """Return the device of an advertisement, or None if it is ignored. Raises `OverflowError` if there is no room."""
        known = self.listed.get(address)
        if known is not None:
            self._advertised(known, rssi, now_s)
            if not known.named:
                self._name(known, advertisement)
            return known if known.named and fits(known.profile, advertisement) else None
        return self._receive_other(address, advertisement, rssi, now_s)

    def alive(self, address: str, now_s: float) -> None:
        """Note a sign of life of a listed device over its connection."""
        known = self.listed.get(address)
        if known is not None:
            self._note(known, known.rssi, now_s)

    def newly_silent(self, now_s: float, excused: Container[str] = ()) -> list[KnownDevice]:
        """Return the listed devices that fell silent since the last call. The silence of addresses in `excused` begins anew."""
        found = []
        for known in self.listed.values():
            if known.address in excused:
                known.since_s = now_s
            last_s = known.since_s if known.received_s is None else max(known.received_s, known.since_s)
            if not known.silent and known.silence_s is not None and now_s - last_s >= known.silence_s:
                known.silent = True
                found.append(known)
        return found

    def _name(self, known: KnownDevice, advertisement: Advertisement | None = None) -> None:
        """Give a listed device its name, if the name is known and no other listed device has it."""
        device = self._listed[known.address].device or listed_name(known.profile, known.address, advertisement)
        if device is None:
            return
        known.refused = next(
            (
                f"its name {device} is that of {each.address} as well; give it another: device = ... in ble.devices"
                for each in self.listed.values()
                if each is not known and each.named and each.device == device
            ),
            None,
        )
        if known.refused is None:
            known.device, known.named = device, True

    def _receive_other(self, address: str, advertisement: Advertisement, rssi: int | None, now_s: float) -> KnownDevice | None:
        for profile in self._profiles:
            device = device_of(profile, address, advertisement)
            if device is not None:
                break
        else:
            return None
        known = self.others.get(address)
        if known is None:
            self._make_room(now_s)
            known = self.others[address] = KnownDevice(address, device, profile, self._reports[profile.name])
        self.others.move_to_end(address)
        known.device, known.profile, known.report = device, profile, self._reports[profile.name]
        self._advertised(known, rssi, now_s)
        return known

    def _make_room(self, now_s: float) -> None:
        if len(self.others) < self._most:
            return
        oldest = next(iter(self.others.values()))
        if oldest.received_s is not None and now_s - oldest.received_s < FORGOTTEN_S:
            raise OverflowError
        self.others.popitem(last=False)

    def is_steady(self, known: KnownDevice, now_s: float) -> bool:
        """Return True if the device has advertised for `steady_s` without a break of that length."""
        return now_s - known.steady_since_s >= self._steady_s

    def _advertised(self, known: KnownDevice, rssi: int | None, now_s: float) -> None:
        if known.received_s is None or now_s - known.received_s > self._steady_s:
            known.steady_since_s = now_s
        self._note(known, rssi, now_s)

    @staticmethod
    def _note(known: KnownDevice, rssi: int | None, now_s: float) -> None:
        known.received_s, known.rssi, known.silent = now_s, rssi, False


def read_settings(settings: BleSettings) -> tuple[list[BleProfile], list[ListedDevice]]:
    """Return the profiles for devices that are not listed, and the listed devices. Raises `Misconfigured`."""
    profiles = find_profiles(settings.profiles, "ble.profiles")
    if not profiles and not settings.devices:
        raise Misconfigured("[ble] names neither profiles nor devices: `fogline-edge ble scan` lists the devices in range")
    listed: dict[str, ListedDevice] = {}
    names: set[str] = set()
    for each in settings.devices:
        address = each.address.upper()
        if address in listed or (each.device is not None and each.device in names):
            raise Misconfigured(f"ble.devices: {each.device if address not in listed else address} is listed twice")
        (profile,) = find_profiles([each.profile], f"ble.devices {address}: profile")
        silence_s = settings.device_silence_s if each.silence_s is None else each.silence_s
        silence_s = max(silence_s, READS_MISSED * profile.shortest_read_s)
        listed[address] = ListedDevice(address, profile, silence_s, report_of(profile, each.min_interval_s), each.device)
        names.update(() if each.device is None else (each.device,))
    return profiles, list(listed.values())


def report_of(profile: BleProfile, min_interval_s: float | None = None) -> ReportPolicy:
    """Return the profile's report-on-change policy, with the minimum interval of one device's settings."""
    report = profile.report.report
    return report if min_interval_s is None else msgspec.structs.replace(report, min_interval_s=min_interval_s)
