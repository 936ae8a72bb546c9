"""The last time that the outbox had no room, in `full.json` in the data folder, where `fogline-edge status` reads it."""

import time
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

import msgspec

from fogline.events.event import parse_rfc3339, rfc3339
from fogline_edge.machine.boot import SYSTEM, Clock
from fogline_edge.machine.fixed_file import overwrite
from fogline_edge.machine.health import free_bytes

FILE = "full.json"
_SIZE = 512


class FullCause(StrEnum):
    """`DISK`: the disk, or this user's quota of it, is full. `BOUND`: the outbox has reached `outbox.max_bytes`."""

    DISK = "disk"
    BOUND = "bound"


class FullPeriod(msgspec.Struct, frozen=True):
    """A time without room. `since`: its begin (RFC 3339). `lasted_s`: None while it lasts.

    `used_bytes`: of the outbox's file at the begin; None if the file could not be opened.
    """

    cause: FullCause
    since: str
    max_bytes: int
    used_bytes: int | None = None
    lasted_s: float | None = None


class FullState(NamedTuple):
    """A period in words. `remedy`: "" if the period is over."""

    reason: str
    remedy: str

    @property
    def sentence(self) -> str:
        """Reason and remedy in one sentence."""
        return f"{self.reason}: {self.remedy}" if self.remedy else self.reason


def read_full(folder: Path) -> FullPeriod | None:
    """Return the last period, None if there was none. A file that cannot be read counts as missing."""
    try:
        return msgspec.json.decode((folder / FILE).read_bytes(), type=FullPeriod | None)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def state_of(period: FullPeriod, folder: Path) -> FullState:
    """Return a period in words, with the bytes that are free at present. `folder`: the data folder."""
    disk = period.cause is FullCause.DISK
    if period.lasted_s is not None:
        what = "the disk, or this user's quota of it, was full" if disk else "the outbox had reached outbox.max_bytes"
        when = f"from {period.since} on for {period.lasted_s:,.0f} s"
        return FullState(f"events were not acknowledged {when}, because {what}", "")
    free = free_bytes(folder)
    room = f"{'an unknown number of' if free is None else format(free, ',')} bytes are free in {folder}"
    if disk:
        why = f"the disk, or this user's quota of it, is full ({room})"
        remedy = "delete other files there, and the gateway goes on by itself"
    else:
        used = "" if period.used_bytes is None else f"{period.used_bytes:,} of {period.max_bytes:,} bytes are used; "
        why = f"the outbox has reached outbox.max_bytes ({used}{room})"
        remedy = "see with fogline-edge doctor why the bridge takes no events, or raise outbox.max_bytes"
    return FullState(f"events are not acknowledged since {period.since}, because {why}", remedy)


class FullRecord:
    """The file of a running gateway. `begin` and `end` are called on one thread at a time."""

    def __init__(self, folder: Path, max_bytes: int, clock: Clock = SYSTEM) -> None:
        self.folder = folder
        self.period = read_full(folder)
        self._max_bytes = max_bytes
        self._clock = clock
        self._began_s: float | None = None

    @property
    def lasts(self) -> bool:
        """True while there is no room."""
        return self.period is not None and self.period.lasted_s is None

    @property
    def sentence(self) -> str:
        """The reason why events are not acknowledged, "" if they are. Any thread may read it."""
        period = self.period
        return "" if period is None or period.lasted_s is not None else state_of(period, self.folder).sentence

    def begin(self, cause: FullCause, used_bytes: int | None = None) -> str:
        """Note that there is no room, unless that is known. Returns the sentence."""
        if not (self.lasts and self.period is not None and self.period.cause is cause):
            self._began_s = time.monotonic()
            self._write(FullPeriod(cause, rfc3339(self._clock.time_ns()), self._max_bytes, used_bytes))
        return self.sentence

    def end(self) -> float:
        """Note that there is room. Returns the seconds that the period lasted."""
        if self.period is None or self.period.lasted_s is not None:
            return 0.0
        if self._began_s is None:  # an earlier run noted the begin
            lasted_s = max(0.0, (self._clock.time_ns() - parse_rfc3339(self.period.since)) / 1e9)
        else:
            lasted_s = time.monotonic() - self._began_s
        self._write(msgspec.structs.replace(self.period, lasted_s=lasted_s))
        return lasted_s

    def opened(self) -> None:
        """Take the room of the file, and end a period of an earlier run: the outbox could be opened, so there is room."""
        if self.lasts:
            self.end()
        elif not (self.folder / FILE).exists():
            self._write(self.period)

    def _write(self, period: FullPeriod | None) -> None:
        self.period = period
        overwrite(self.folder / FILE, msgspec.json.encode(period), _SIZE)
