"""Results of `fogline-edge ble scan`, as a table, as settings and as JSON. Pure."""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fogline.advertisement import Advertisement
from fogline.process.console.terminal import escaped
from fogline_edge.profiles.ble import BleProfile, device_of, fits

_COLUMNS = ("address", "dBm", "heard", "profile", "device", "says")
_SHOWN = 40
_UNFIT = re.compile(r"[^A-Za-z0-9._]+", re.ASCII)
_LONGEST = 48


@dataclass(slots=True)
class ScanResult:
    """One device. `advertisement`: all of its advertised data so far. `heard`: number of advertisements."""

    address: str
    rssi: int
    heard: int
    advertisement: Advertisement
    profile: BleProfile | None = None
    device: str | None = None


class ScanResults:
    """Devices by address. The first of `profiles` that fits a device applies."""

    def __init__(self, profiles: Sequence[BleProfile]) -> None:
        self._profiles = tuple(profiles)
        self._found: dict[str, ScanResult] = {}

    def add(self, address: str, advertisement: Advertisement, rssi: int) -> None:
        """Add an advertisement."""
        found = self._found.get(address)
        if found is None:
            found = self._found[address] = ScanResult(address, rssi, 0, advertisement)
        found.rssi, found.advertisement, found.heard = rssi, advertisement, found.heard + 1
        found.profile = next((each for each in self._profiles if fits(each, advertisement)), None)
        found.device = device_of(found.profile, address, advertisement) if found.profile else None

    def all(self) -> list[ScanResult]:
        """Return devices that fit a profile first, by signal strength."""
        return sorted(self._found.values(), key=lambda each: (each.profile is None, -each.rssi, each.address))

    def table(self) -> list[str]:
        """Return the lines of a table."""
        names = self._names()
        cells: list[tuple[str, ...]] = [_COLUMNS, *(_row(each, names.get(each.address)) for each in self.all())]
        widths = [max(len(row[index]) for row in cells) for index in range(len(_COLUMNS))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
        return [escaped(line) for line in lines] if self._found else ["no advertisement was received yet"]

    def toml(self) -> str:
        """Return the settings to add for these devices; empty if no profile fits any."""
        names = self._names()
        fitting = [(each, each.profile) for each in self.all() if each.profile is not None]
        references = sorted({profile.reference for _, profile in fitting if not profile.connects})
        parts = [f"[ble]\nprofiles = {json.dumps(references)}\n"] if fitting else []
        parts += [_entry(each, profile, names[each.address]) for each, profile in fitting if profile.connects]
        return "\n".join(parts)

    def json(self) -> list[dict[str, Any]]:
        """Return the devices as JSON values."""
        names = self._names()
        return [_plain(each, names.get(each.address)) for each in self.all()]

    def _names(self) -> dict[str, str]:
        """Return names by address: the one by the profile, or a better one for the settings if that is only the address."""
        names = {each.address: each.device for each in self._found.values() if each.device is not None}
        suggested: dict[str, tuple[str, str]] = {}
        for each in self.all():
            if each.profile is not None and each.profile.connects and each.device in (None, each.address):
                name = _UNFIT.sub("-", each.advertisement.name or "").strip("-")[:_LONGEST]
                suggested[each.address] = name, each.profile.name
        taken = Counter([*(name for name, _ in suggested.values()), *names.values()])
        for address, (name, profile) in suggested.items():
            end = address.replace(":", "").lower()[-4:]
            names[address] = name if taken[name] == 1 and name else f"{name or profile}-{end}"
        return names


def _row(found: ScanResult, name: str | None) -> tuple[str, ...]:
    profile = found.profile.name if found.profile else "-"
    return found.address, str(found.rssi), str(found.heard), profile, name or "-", _content(found.advertisement)


def _content(advertisement: Advertisement) -> str:
    words = [repr(advertisement.name)] if advertisement.name else []
    words += [f"service {_short(uuid)}" for uuid in advertisement.services]
    words += [f"{_short(uuid)}: {data.hex()}" for uuid, data in advertisement.service_data.items()]
    words += [f"0x{company:04x}: {data.hex()}" for company, data in advertisement.manufacturer.items()]
    text = ", ".join(words)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def _short(uuid: str) -> str:
    return uuid[4:8] if uuid.endswith("-0000-1000-8000-00805f9b34fb") else uuid


def _entry(found: ScanResult, profile: BleProfile, name: str) -> str:
    comment = f"  # {found.advertisement.name!r}" if found.advertisement.name else ""
    lines = [f"[[ble.devices]]{comment}", f'address = "{found.address}"', f"profile = {json.dumps(profile.reference)}"]
    return "\n".join((*lines, f'device = "{name}"', ""))


def _plain(found: ScanResult, name: str | None) -> dict[str, Any]:
    advertisement = found.advertisement
    return {
        "address": found.address,
        "rssi": found.rssi,
        "heard": found.heard,
        "profile": found.profile.name if found.profile else None,
        "device": name,
        "connects": bool(found.profile and found.profile.connects),
        "name": advertisement.name,
        "services": list(advertisement.services),
        "service_data": _hex(advertisement.service_data),
        "manufacturer": _hex({f"0x{company:04x}": data for company, data in advertisement.manufacturer.items()}),
    }


def _hex(found: Mapping[str, bytes]) -> dict[str, str]:
    return {key: data.hex() for key, data in found.items()}
