"""Decides which devices are silent for too long, by the longest silences of `[[fleet.silent]]`. Pure."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import NamedTuple

from fogline_cloud.fleet_settings import SilentSettings

USUAL_S = 86_400.0
"""The longest silence where the settings name none, in seconds."""
LastOf = Callable[[str], float | None]
"""Returns when a device was heard last on a lane, "" for any, in seconds since 1970; None for never."""


class Silence(NamedTuple):
    """A silence that is too long. `lane`: "" for any. `last_s`: seconds since 1970, None if the device was never heard."""

    lane: str
    last_s: float | None
    silent_s: float
    after_s: float


def limits_of(device_type: str, rules: Iterable[SilentSettings]) -> dict[str, float]:
    """Return the longest silence of a type of device by lane, "" for any. The first matching entry of each lane applies."""
    found: dict[str, float] = {}
    for each in rules:
        if fnmatchcase(device_type, each.type):
            found.setdefault(each.lane.value if each.lane is not None else "", each.after_s)
    return found


class SilenceRules:
    """The settings, or else `USUAL_S` for every device."""

    def __init__(self, rules: Sequence[SilentSettings]) -> None:
        self._rules = rules or [SilentSettings(after_s=USUAL_S)]
        self._limits = lru_cache(maxsize=1000)(lambda device_type: limits_of(device_type, self._rules))

    def silences(self, device_type: str, last_of: LastOf, since_s: float | None, now_s: float) -> Iterator[Silence]:
        """Yield the silences of one device that are too long.

        `since_s`: when it was registered. A device that was never heard is silent since then, or always.
        """
        for lane, after_s in self._limits(device_type).items():
            last_s = last_of(lane)
            begin_s = since_s if last_s is None else last_s
            silent_s = now_s - (begin_s if begin_s is not None else 0.0)
            if silent_s > after_s:
                yield Silence(lane, last_s, silent_s, after_s)
