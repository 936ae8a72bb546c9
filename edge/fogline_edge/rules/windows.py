"""Windows: the numbers of a device in a span of time, merged into one event. Pure.

A window has a name: its start, a multiple of its length since 1970 by the device's own time, or by the gateway's clock if the
device gives none. While the gateway's clock is not known to be right, the windows of devices without a time are spans of the
gateway's age. Windows close by the gateway's age, which does not jump.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from fogline.events.event import Arrival, rfc3339
from fogline_edge.rules.change import is_number
from fogline_edge.rules.fields import PointerField
from fogline_edge.rules.payload import Payload
from fogline_edge.rules.quantiles import Bins

AGGREGATE_CONTENT_TYPE = "application/vnd.fogline-aggregate+json"
GRACE_SHARE, MAX_GRACE_MS = 10, 10_000
"""A window closes a tenth of its length after its end, but not later than this: the last events are still on their way."""
LATE_MS = 10_000
"""Time for which a window that was closed gathers late events before it is sent again, in milliseconds."""
_MS = 1_000_000


class WallTime(NamedTuple):
    """The wall clock. `synced`: it is known to be right."""

    time_ns: int
    synced: bool


class FieldState(msgspec.Struct, array_like=True):
    """The numbers of one field so far. `last_ns`: the time of `last`. `bins`: None if no quantile is wanted."""

    count: int = 0
    mean: float = 0.0
    least: float = 0.0
    most: float = 0.0
    last: float = 0.0
    last_ns: int = 0
    bins: Bins | None = None

    def add(self, value: float, time_ns: int) -> None:
        """Add a number that the field had at a time."""
        self.least = value if not self.count else min(self.least, value)
        self.most = value if not self.count else max(self.most, value)
        if not self.count or time_ns >= self.last_ns:
            self.last, self.last_ns = value, time_ns
        self.count += 1
        self.mean += value / self.count - self.mean / self.count
        if self.bins is not None:
            self.bins.add(value)

    def aggregate(self, name: str) -> float | None:
        """Return an aggregate of the settings, such as `mean` or `p95`. The field must have numbers."""
        if name.startswith("p"):
            found = self.bins.quantile(float(name[1:]) / 100) if self.bins is not None else None
            return None if found is None else self._between(found)
        exact = {"count": self.count, "mean": self._between(self.mean), "min": self.least, "max": self.most, "last": self.last}
        return exact[name]

    def _between(self, value: float) -> float:
        """Return a rounded value within the numbers that it stands for."""
        return min(max(value, self.least), self.most)


class WindowState(msgspec.Struct, array_like=True):
    """One window. `start_ms`: since 1970, or the gateway's age if `by_age`, in the boot `boot`. `names`: those of the fields.

    It needs no settings: a window closes also if its rule was changed or deleted meanwhile. `late_ms`: for which the window is
    kept after it was closed. `revision`: how often it was closed before.
    """

    rule: str
    device: str
    channel: str
    lane: str
    type: str
    start_ms: int
    length_ms: int
    late_ms: int
    by_age: bool
    boot: str
    aggregates: tuple[str, ...]
    names: tuple[str, ...]
    fields: list[FieldState]
    count: int = 0
    revision: int = 0

    @property
    def end_ms(self) -> int:
        """The first moment after the window."""
        return self.start_ms + self.length_ms

    def add(self, values: Sequence[float | None], time_ns: int) -> None:
        """Merge an event: the numbers of its fields, None for a field that it does not have."""
        self.count += 1
        for field, value in zip(self.fields, values, strict=True):
            if value is not None:
                field.add(value, time_ns)

    def span_ns(self, now: WallTime, age_ms: int, boot: str) -> tuple[int, int] | None:
        """Return start and end since 1970. None if nobody knows them: the clock was not right in the boot of the window."""
        shift_ms = 0
        if self.by_age:
            if not now.synced or self.boot != boot:
                return None
            shift_ms = now.time_ns // _MS - age_ms
        return (self.start_ms + shift_ms) * _MS, (self.end_ms + shift_ms) * _MS

    def document(self, span_ns: tuple[int, int] | None) -> bytes:
        """Return the aggregate's JSON."""
        begin, end = (None, None) if span_ns is None else map(rfc3339, span_ns)
        fields = {
            name: {each: field.aggregate(each) for each in self.aggregates}
            for name, field in zip(self.names, self.fields, strict=True)
            if field.count
        }
        return msgspec.json.encode(
            {
                "rule": self.rule,
                "start": begin,
                "end": end,
                "seconds": self.length_ms // 1000,
                "revision": self.revision,
                "count": self.count,
                "values": fields,
            }
        )


decode_window = msgspec.msgpack.Decoder(WindowState).decode
"""Returns a window of a row. Raises `msgspec.MsgspecError`."""


@dataclass(frozen=True, slots=True)
class WindowPlace:
    """The window of an event. `source`: digest of rule, device and channel. `due_ms`: the gateway's age at which it closes.

    `in_time`: a window may be opened for it. `time_ns`: the event's time.
    """

    source: bytes
    start_ms: int
    by_age: bool
    due_ms: int
    in_time: bool
    time_ns: int


@dataclass(frozen=True, slots=True)
class WindowRule:
    """A rule with windows. Times in milliseconds. `names`: those of the fields in the aggregate."""

    name: str
    fields: tuple[PointerField, ...]
    names: tuple[str, ...]
    aggregates: tuple[str, ...]
    length_ms: int
    late_ms: int
    keep_s: int = 0

    @property
    def grace_ms(self) -> int:
        """Time between the end of a window and its close."""
        return min(self.length_ms // GRACE_SHARE, MAX_GRACE_MS)

    def values(self, payload: Payload) -> tuple[float | None, ...] | None:
        """Return the numbers of an event's fields; None if it has none of them."""
        found: list[Any] = [payload.value(each) for each in self.fields]
        values = tuple(float(each) if is_number(each) else None for each in found)
        return values if any(each is not None for each in values) else None

    def sentence(self, values: Sequence[float | None]) -> str:
        """Return what the rule does, in one sentence."""
        shown = ", ".join(f"{name} = {value:g}" for name, value in zip(self.names, values, strict=True) if value is not None)
        return f"{shown}: merged into its window of {self.length_ms // 1000} s, and counted as merged"

    def place(self, arrival: Arrival, when: WallTime, age_ms: int) -> WindowPlace:
        """Return the window of an event that came at `when`, at the gateway's age `age_ms`."""
        by_age = arrival.time_ns is None and not when.synced
        time_ns = when.time_ns if arrival.time_ns is None else arrival.time_ns
        time_ms = age_ms if by_age else time_ns // _MS
        start_ms = time_ms - time_ms % self.length_ms
        end_ms, in_time = start_ms + self.length_ms, True
        if by_age:
            due_ms = end_ms + self.grace_ms
        elif not when.synced:
            due_ms = age_ms + self.length_ms + self.grace_ms
        else:
            now_ms = when.time_ns // _MS
            in_time = end_ms + self.late_ms > now_ms and start_ms <= now_ms + self.length_ms
            left_ms = end_ms + self.grace_ms - now_ms
            due_ms = age_ms + (left_ms if left_ms > 0 else LATE_MS)
        return WindowPlace(self._source(arrival, by_age=by_age), start_ms, by_age, due_ms, in_time, time_ns)

    def open(self, arrival: Arrival, place: WindowPlace, boot: str) -> WindowState:
        """Return a new window."""
        wants_bins = any(each.startswith("p") for each in self.aggregates)
        return WindowState(
            rule=self.name,
            device=arrival.device,
            channel=arrival.channel,
            lane=arrival.lane.value,
            type=arrival.type,
            start_ms=place.start_ms,
            length_ms=self.length_ms,
            late_ms=self.late_ms,
            by_age=place.by_age,
            boot=boot,
            aggregates=self.aggregates,
            names=self.names,
            fields=[FieldState(bins=Bins() if wants_bins else None) for _ in self.fields],
        )

    def _source(self, arrival: Arrival, *, by_age: bool) -> bytes:
        definition = (self.name, str(self.length_ms), *self.aggregates, *self.names)
        return _digest(definition, arrival.device, arrival.channel, arrival.lane.value, arrival.type, str(by_age))


@lru_cache(maxsize=4096)
def _digest(definition: tuple[str, ...], *source: str) -> bytes:
    """Return what tells the windows of one start apart: also the definition, which may change between two runs."""
    parts = [each.encode() for each in (*definition, *source)]
    return hashlib.blake2b(b"".join([len(each).to_bytes(4, "big") + each for each in parts]), digest_size=16).digest()
