"""Filters of devices such as `type=lamp,site=berlin`. Pure."""

from collections.abc import Iterable
from fnmatch import fnmatchcase

import msgspec

from fogline.address import shown
from fogline.errors import Poison
from fogline_cloud.devices.device_table import DeviceEntry

MAX_TERMS = 32


class DeviceFilter(msgspec.Struct, frozen=True):
    """Devices that match every term: a name of a field or a tag, and a pattern with `*` and `?`."""

    terms: tuple[tuple[str, str], ...] = ()

    def matches(self, device: DeviceEntry) -> bool:
        """Return True if a device matches every term. A device without the field or tag does not match."""
        return all(_matches(device, name, pattern) for name, pattern in self.terms)


def read_filter(texts: Iterable[str]) -> DeviceFilter:
    """Read filters of the form `type=lamp,site=berlin`. Raises `Poison('malformed')`, which names the term."""
    terms = []
    for term in (each.strip() for text in texts for each in text.split(",")):
        name, equals, pattern = term.partition("=")
        if not (name and equals and pattern):
            raise Poison("malformed", f"where {shown(term)}: expected name=value, for example type=lamp,site=berlin")
        terms.append((name, pattern))
    if len(terms) > MAX_TERMS:
        raise Poison("malformed", f"where: {len(terms)} terms, but at most {MAX_TERMS} are allowed")
    return DeviceFilter(tuple(terms))


def _matches(device: DeviceEntry, name: str, pattern: str) -> bool:
    match name:
        case "device":
            values = [device.name]
        case "type":
            values = [device.type]
        case "gateway":
            values = device.gateways
        case "firmware":
            values = [device.firmware]
        case _:
            values = [device.tags.get(name, "")]
    return any(value and fnmatchcase(value, pattern) for value in values)
