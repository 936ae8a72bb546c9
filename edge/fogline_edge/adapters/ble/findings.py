"""What `fogline-edge ble scan` has heard: pure."""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fogline.advertisement import Advertisement
from fogline_edge.profiles.ble import BleProfile, device_of, fits

_COLUMNS = ("address", "dBm", "heard", "profile", "device", "says")
_SHOWN = 40
_UNFIT = re.compile(r"[^A-Za-z0-9._]+", re.ASCII)
_LONGEST = 48


@dataclass(slots=True)
class Finding:
    """One device. `advertisement`: all that it has said so far."""

    address: str
    rssi: int
    heard: int
    advertisement: Advertisement
    profile: BleProfile | None = None
    device: str | None = None


class Findings:
    """By address. `profiles`: the first that fits is named."""

    def __init__(self, profiles: Sequence[BleProfile]) -> None:
        self._profiles = tuple(profiles)
        self._found: dict[str, Finding] = {}

    def hear(self, address: str, advertisement: Advertisement, rssi: int) -> None:
        """An advertisement came."""
        found = self._found.get(address)
        if found is None:
            found = self._found[address] = Finding(address, rssi, 0, advertisement)
        found.rssi, found.advertisement, found.heard = rssi, advertisement, found.heard + 1
        found.profile = next((each for each in self._profiles if fits(each, advertisement)), None)
        found.device = device_of(found.profile, address, advertisement) if found.profile else None

    def all(self) -> list[Finding]:
        """Those that a profile fits first, the strongest of them first."""
        return sorted(self._found.values(), key=lambda each: (each.profile is None, -each.rssi, each.address))

    def table(self) -> list[str]:
        """For people."""
        names = self._names()
        cells: list[tuple[str, ...]] = [_COLUMNS, *(_row(each, names.get(each.address)) for each in self.all())]
        widths = [max(len(row[index]) for row in cells) for index in range(len(_COLUMNS))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
        return lines if self._found else ["nothing was heard yet"]

    def toml(self) -> str:
        """What to add to the settings for what was heard; empty if no profile fits anything."""
        fitting = [each for each in self.all() if each.profile is not None]
        fits = [each.profile for each in fitting if each.profile is not None]
        references = sorted({each.reference for each in fits if not each.connects})
        parts = [f"[ble]\nprofiles = {json.dumps(references)}\n"] if fitting else []
        names = self._names()
        parts += [
            _entry(each, each.profile, names[each.address])
            for each in fitting
            if each.profile is not None and each.profile.connects
        ]
        return "\n".join(parts)

    def json(self) -> list[dict[str, Any]]:
        """For programs."""
        names = self._names()
        return [_plain(each, names.get(each.address)) for each in self.all()]

    def _names(self) -> dict[str, str]:
        """Names by address: the profile's, or one to write into the settings if that would be just the address."""
        names = {each.address: each.device for each in self._found.values() if each.device is not None}
        said: dict[str, tuple[str, str]] = {}
        for each in self.all():
            if each.profile is not None and each.profile.connects and each.device in (None, each.address):
                said[each.address] = _UNFIT.sub("-", each.advertisement.name or "").strip("-")[:_LONGEST], each.profile.name
        taken = Counter([*(name for name, _ in said.values()), *names.values()])
        for address, (name, profile) in said.items():
            end = address.replace(":", "").lower()[-4:]
            names[address] = name if taken[name] == 1 and name else f"{name or profile}-{end}"
        return names


def _row(found: Finding, name: str | None) -> tuple[str, ...]:
    profile = found.profile.name if found.profile else "-"
    return found.address, str(found.rssi), str(found.heard), profile, name or "-", _says(found.advertisement)


def _says(advertisement: Advertisement) -> str:
    words = [repr(advertisement.name)] if advertisement.name else []
    words += [f"service {_short(uuid)}" for uuid in advertisement.services]
    words += [f"{_short(uuid)}: {data.hex()}" for uuid, data in advertisement.service_data.items()]
    words += [f"0x{company:04x}: {data.hex()}" for company, data in advertisement.manufacturer.items()]
    said = ", ".join(words)
    return said if len(said) <= _SHOWN else f"{said[: _SHOWN - 3]}..."


def _short(uuid: str) -> str:
    return uuid[4:8] if uuid.endswith("-0000-1000-8000-00805f9b34fb") else uuid


def _entry(found: Finding, profile: BleProfile, name: str) -> str:
    said = f"  # {found.advertisement.name!r}" if found.advertisement.name else ""
    lines = [f"[[ble.devices]]{said}", f'address = "{found.address}"', f"profile = {json.dumps(profile.reference)}"]
    return "\n".join((*lines, f'device = "{name}"', ""))


def _plain(found: Finding, name: str | None) -> dict[str, Any]:
    said = found.advertisement
    return {
        "address": found.address,
        "rssi": found.rssi,
        "heard": found.heard,
        "profile": found.profile.name if found.profile else None,
        "device": name,
        "connects": bool(found.profile and found.profile.connects),
        "name": said.name,
        "services": list(said.services),
        "service_data": _hex(said.service_data),
        "manufacturer": _hex({f"0x{company:04x}": data for company, data in said.manufacturer.items()}),
    }


def _hex(found: Mapping[str, bytes]) -> dict[str, str]:
    return {key: data.hex() for key, data in found.items()}
