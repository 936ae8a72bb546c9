"""Decides which devices are silent for too long, by the longest silences of `[[fleet.silent]]`. Pure."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache, partial
from typing import NamedTuple

from fogline_cloud.devices.device_table import DeviceEntry
from fogline_cloud.fleet_settings import SilentSettings

USUAL_S = 86_400.0
"""The longest silence where the settings name none, in seconds."""
ANY_LANE = ""
MAX_TYPES = 100
"""Types of devices of which silent ones are counted. Further ones count as `OTHER`."""
OTHER = "other"
LastOf = Callable[[str], float | None]
"""Returns when a device was heard last on a lane, or `ANY_LANE`, in seconds since 1970; None for never."""


class Silence(NamedTuple):
    """A silence that is too long. `last_s`: seconds since 1970, None if the device was never heard."""

    lane: str
    last_s: float | None
    silent_s: float
    after_s: float


class SilenceRules:
    """The longest silences of the settings, or else `USUAL_S` for every device."""

    def __init__(self, rules: Sequence[SilentSettings]) -> None:
        self._rules = rules or [SilentSettings(after_s=USUAL_S)]
        self._limits = lru_cache(maxsize=1000)(self._limits_of)

    @property
    def lanes(self) -> frozenset[str]:
        """The lanes that have a limit of their own."""
        return frozenset(each.lane.value for each in self._rules if each.lane is not None)

    def limits(self, device_type: str) -> dict[str, float]:
        """Return the longest silence of a type of device by lane. The first matching entry of each lane applies."""
        return self._limits(device_type)

    def silences(self, device_type: str, last_of: LastOf, since_s: float | None, now_s: float) -> Iterator[Silence]:
        """Yield the silences of one device that are too long.

        `since_s`: when it was registered. A device that was never heard is silent since then, or always.
        """
        for lane, after_s in self.limits(device_type).items():
            last_s = last_of(lane)
            begin_s = since_s if last_s is None else last_s
            silent_s = now_s - (begin_s if begin_s is not None else 0.0)
            if silent_s > after_s:
                yield Silence(lane, last_s, silent_s, after_s)

    def _limits_of(self, device_type: str) -> dict[str, float]:
        found: dict[str, float] = {}
        for each in self._rules:
            if fnmatchcase(device_type, each.type):
                found.setdefault(each.lane.value if each.lane is not None else ANY_LANE, each.after_s)
        return found


class SilentCount:
    """Counts silent devices by type and lane. `counts` has 0 too. A device that was never heard and that nobody set is none."""

    def __init__(self, rules: SilenceRules, now_s: float) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self._rules = rules
        self._now_s = now_s
        self._types: set[str] = set()

    def add(self, device: DeviceEntry) -> None:
        """Look at one device."""
        if device.record is None and not device.sightings:
            return
        kind = device.type if device.type in self._types or len(self._types) < MAX_TYPES else OTHER
        self._types.add(kind)
        for lane in self._rules.limits(device.type):
            self.counts[kind, lane] += 0
        since_s = device.record.changed_ms / 1000 if device.record is not None else None
        for silence in self._rules.silences(device.type, partial(_last_of, device), since_s, self._now_s):
            self.counts[kind, silence.lane] += 1


def _last_of(device: DeviceEntry, lane: str) -> float | None:
    if lane == ANY_LANE:
        return device.seen_ms / 1000 if device.seen_ms is not None else None
    return max((each.lanes[lane] / 1000 for _, each in device.sightings if each.lanes and lane in each.lanes), default=None)
