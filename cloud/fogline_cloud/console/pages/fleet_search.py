"""What a reader asks of the list of devices. Pure."""

from collections.abc import Mapping
from typing import Final

import msgspec

from fogline.address import shown
from fogline_cloud.api.problems import Problem
from fogline_cloud.devices.device_filter import DeviceFilter
from fogline_cloud.devices.device_table import DeviceEntry

SILENT_S: Final = {"10m": 600, "1h": 3600, "1d": 86_400, "7d": 604_800}
NEVER: Final = "never"
SILENT: Final = {"": "any", "10m": "10 minutes", "1h": "1 hour", "1d": "1 day", "7d": "7 days", NEVER: "never heard"}
"""How long a device may have been silent, as the form says it."""
MAX_CHARS: Final = 200
_FIELDS: Final = ("type", "gateway", "firmware")


class DeviceSearch(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of the form. `*` and `?` are wildcards; a name without one is looked for within the names."""

    name: str = ""
    type: str = ""
    tag: str = ""
    """`name=value`."""
    gateway: str = ""
    firmware: str = ""
    silent: str = ""
    after: str = ""
    """The name behind which the page begins."""

    def filter(self) -> DeviceFilter:
        """Return the patterns. Raises `Problem` (400) for a tag without a value."""
        terms = [(name, pattern) for name in _FIELDS if (pattern := getattr(self, name))]
        if self.name:
            terms.append(("device", self.name if set("*?") & set(self.name) else f"*{self.name}*"))
        if self.tag:
            name, equals, pattern = self.tag.partition("=")
            if not (name and equals and pattern):
                raise Problem(400, f"tag {shown(self.tag)}: expected name=value, for example site=berlin")
            terms.append((name, pattern))
        return DeviceFilter(tuple(terms))

    def is_silent(self, device: DeviceEntry, now_ms: int) -> bool:
        """Return True if a device has been silent for as long as is asked."""
        if not self.silent:
            return True
        if device.seen_ms is None or self.silent == NEVER:
            return device.seen_ms is None
        return now_ms - device.seen_ms >= SILENT_S[self.silent] * 1000

    def parameters(self, after: str = "") -> dict[str, str]:
        """Return the parameters of the address of this search, that of the page behind `after`."""
        return {name: value for name, value in {**msgspec.structs.asdict(self), "after": after}.items() if value}


def read_search(parameters: Mapping[str, str]) -> DeviceSearch:
    """Read the parameters of an address. Raises `Problem` (400)."""
    names = DeviceSearch.__struct_fields__
    found = DeviceSearch(**{name: parameters.get(name, "").strip()[:MAX_CHARS] for name in names})
    if found.silent not in SILENT:
        raise Problem(400, f"silent={shown(found.silent)}: expected one of {', '.join(filter(None, SILENT))}")
    return found
