"""The questions about the fleet, answered from rows of table `fleet` and the registry of devices. Pure.

An answer is a list of rows: values by the name of their column, in the order in which they are shown.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from fogline.process.console.listing import utc
from fogline_cloud.devices.silence import SilenceRules
from fogline_cloud.fleet.buckets import above, percentile
from fogline_cloud.flows.tables.schema import EventOutcome

DAY, TYPE, FIRMWARE, GATEWAY = "day", "type", "firmware", "gateway"
OF_DEVICE = (TYPE, FIRMWARE, GATEWAY)
"""Fields that divide devices: as the registry has them, else as the last events had them."""
OF_EVENT = (DAY, *OF_DEVICE, "lane", "adapter", "parser", "device")
"""Fields that divide events: as each event had them, and the type by the registry."""
OUTCOMES = tuple(
    each.value for each in (EventOutcome.OK, EventOutcome.SKIP, EventOutcome.SLOW, EventOutcome.DEAD, EventOutcome.DUPLICATE)
)
_COUNTED = ("devices", "silent", "never")
_MS = 1000
_US = 1_000_000
Answer = list[dict[str, Any]]
NEEDED = {
    "coverage": ("heard", "gateway", "firmware", "last", "events"),
    "silent": ("lane", "gateway", "firmware", "last"),
    "late": ("events", "delayed", "most_delay_ms", "ahead", "behind", "delays"),
    "sizes": ("events", "bytes", "most_bytes", "sizes"),
    "health": ("events", *OUTCOMES),
}
"""Columns of table `fleet` that each answer needs, beside those by which it is divided."""


class FleetDevice(msgspec.Struct, frozen=True):
    """A device of the registry. `registered_s`: when an operator changed it last, in seconds since 1970; None if nobody did."""

    type: str = ""
    firmware: str = ""
    gateway: str = ""
    registered_s: float | None = None


Registry = Mapping[str, FleetDevice]
"""Devices by name."""


def columns_of(question: str, by: Sequence[str]) -> list[str]:
    """Return the columns of table `fleet` that an answer needs."""
    divided = ("heard" if each == DAY else each for each in by if each != TYPE)
    return list(dict.fromkeys(["tenant", "device", *divided, *NEEDED[question]]))


def of_devices(rows: pa.Table, tenant: str) -> pa.Table:
    """Return the rows of a tenant's devices. A row without a tenant is one."""
    own = pc.fill_null(pc.equal(rows.column("tenant"), tenant), True)
    return rows.filter(pc.and_(own, rows.column("device").is_valid()))


def coverage(rows: pa.Table, registry: Registry, by: Sequence[str], today: date | None = None) -> Answer:
    """Return how many devices were heard, and how many of those in the registry. `by`: DAY and OF_DEVICE.

    `heard` counts other devices too, `share` does not. If `by` is only the day, the last row is the whole time. By day, each
    group of the registry has a row for each day from the first on which a device was heard to the last, or to `today`.
    """
    members = _members(rows, registry)
    keys = [each for each in by if each != DAY]
    groups = {name: tuple(getattr(each, key) for key in keys) for name, each in members.items()}
    registered: dict[tuple[Any, ...], set[str]] = defaultdict(set)
    for name in registry:
        registered[groups[name]].add(name)
    heard: dict[tuple[Any, ...], set[str]] = {} if DAY in by else {group: set() for group in registered}
    events: dict[tuple[Any, ...], int] = defaultdict(int)
    found = rows.group_by(["device", *(["heard"] if DAY in by else [])]).aggregate([("events", "sum")])
    days = found.column("heard").to_pylist() if DAY in by else [None] * len(found)
    for device, day, count in zip(
        found.column("device").to_pylist(), days, found.column("events_sum").to_pylist(), strict=True
    ):
        key = groups[device] if day is None else (day, *groups[device])
        heard.setdefault(key, set()).add(device)
        events[key] += count
    if DAY in by and heard:
        for day in _days({key[0] for key in heard}, today):
            for group in registered:
                heard.setdefault((day, *group), set())
    answer = []
    for key in sorted(heard, key=lambda key: tuple(map(str, key))):
        of_group = registered.get(key[1:] if DAY in by else key, set())
        names = dict(zip([DAY, *keys] if DAY in by else keys, map(_text, key), strict=True))
        answer.append({name: names[name] for name in by} | _covered(heard[key], of_group, events[key]))
    if tuple(by) == (DAY,):
        every = _covered({*pc.unique(rows.column("device")).to_pylist()}, {*registry}, sum(events.values()))
        answer.append({DAY: "all"} | every)
    return answer


def _days(known: set[date], today: date | None) -> list[date]:
    first, last = min(known), max({*known, *([today] if today else [])})
    return [first + timedelta(days=number) for number in range((last - first).days + 1)]


def _covered(heard: set[str], registered: set[str], events: int) -> dict[str, Any]:
    of_registry = len(heard & registered)
    return {"registered": len(registered), "heard": len(heard), "share": _share(of_registry, len(registered)), "events": events}


def silent(rows: pa.Table, registry: Registry, rules: SilenceRules, now: datetime) -> Answer:
    """Return each device that is silent for too long, those that were never heard first, then the longest silence first."""
    last: dict[str, dict[str, float]] = defaultdict(dict)
    found = rows.group_by(["device", "lane"]).aggregate([("last", "max")])
    moments = found.column("last_max").cast(pa.int64()).to_pylist()
    for device, lane, at_us in zip(found.column("device").to_pylist(), found.column("lane").to_pylist(), moments, strict=True):
        last[device][lane or ""] = at_us / _US
    silences = [
        (name, each, silence)
        for name, each in _members(rows, registry).items()
        for silence in rules.silences(each.type, partial(_last, last[name]), each.registered_s, now.timestamp())
    ]
    silences.sort(key=lambda found: (found[2].last_s is not None, -found[2].silent_s, found[0]))
    return [
        {
            "device": name,
            "type": each.type or None,
            "firmware": each.firmware or None,
            "gateway": each.gateway or None,
            "lane": silence.lane or None,
            "last": utc(silence.last_s) if silence.last_s is not None else None,
            "silent_s": round(silence.silent_s) if silence.last_s is not None else None,
            "limit_s": silence.after_s,
        }
        for name, each, silence in silences
    ]


def silent_counts(rows: pa.Table, registry: Registry, found: Answer, by: Sequence[str]) -> Answer:
    """Return the numbers of devices, of silent ones and of those never heard in each group. `found`: the answer of `silent`."""
    members = _members(rows, registry)
    groups = {name: tuple(getattr(each, key) or None for key in by) for name, each in members.items()}
    heard = {*pc.unique(rows.column("device")).to_pylist()}
    counts: dict[tuple[Any, ...], dict[str, set[str]]] = defaultdict(lambda: {each: set() for each in _COUNTED})
    for name, group in groups.items():
        counts[group]["devices"].add(name)
        if name not in heard:
            counts[group]["never"].add(name)
    for each in found:
        counts[groups[each["device"]]]["silent"].add(each["device"])
    return [
        dict(zip(by, group, strict=True)) | {name: len(some) for name, some in counts[group].items()}
        for group in sorted(counts, key=str)
    ]


def late(rows: pa.Table, registry: Registry, by: Sequence[str], over_s: int) -> Answer:
    """Return how late events came: from the gateway's time to that of Kafka. `over_s`: one of `DELAYS_S`.

    Percentiles are at most a step too large. Events of a gateway whose clock was not known to be right have no delay.
    """
    return [
        {
            **key,
            "events": _total(some, "events"),
            "p50_s": _part(counts, 0.5, most),
            "p99_s": _part(counts, 0.99, most),
            "most_s": most / _MS,
            "over": (over := above(counts, over_s * _MS)),
            "share": _share(over, _total(some, "delayed")),
            "no_delay": _total(some, "events") - _total(some, "delayed"),
            "ahead": _total(some, "ahead"),
            "behind": _total(some, "behind"),
        }
        for key, some in _divided(rows, registry, by)
        for counts, most in [(_counts(some.column("delays")), _most(some, "most_delay_ms"))]
    ]


def sizes(rows: pa.Table, registry: Registry, by: Sequence[str]) -> Answer:
    """Return how large bodies are. Percentiles are at most an eighth too large."""
    return [
        {
            **key,
            "events": (events := _total(some, "events")),
            "bytes": (size := _total(some, "bytes")),
            "mean": round(size / events),
            "p50": min(percentile(counts, 0.5) or 0, most),
            "p99": min(percentile(counts, 0.99) or 0, most),
            "most": most,
        }
        for key, some in _divided(rows, registry, by)
        for counts, most in [(_counts(some.column("sizes")), _most(some, "most_bytes"))]
    ]


def health(rows: pa.Table, registry: Registry, by: Sequence[str]) -> Answer:
    """Return the outcomes of the events. `share`: that of `ok` among those that are no duplicates."""
    return [
        {
            **key,
            "events": (events := _total(some, "events")),
            **(counts := {name: _total(some, name) for name in OUTCOMES}),
            "share": _share(counts["ok"], events - counts["duplicate"]),
        }
        for key, some in _divided(rows, registry, by)
    ]


def _members(rows: pa.Table, registry: Registry) -> dict[str, FleetDevice]:
    """Return every device: what the registry does not know of it, as its last events had it."""
    found = rows.sort_by("last").group_by("device", use_threads=False).aggregate([("gateway", "last"), ("firmware", "last")])
    members = dict(registry)
    columns = (found.column(name).to_pylist() for name in ("device", "gateway_last", "firmware_last"))
    for name, gateway, firmware in zip(*columns, strict=True):
        known = registry.get(name, _UNKNOWN)
        if not (known.gateway and known.firmware) or name not in members:
            members[name] = msgspec.structs.replace(
                known, gateway=known.gateway or gateway or "", firmware=known.firmware or firmware or ""
            )
    return members


_UNKNOWN = FleetDevice()


def _last(of_lanes: Mapping[str, float], lane: str) -> float | None:
    return of_lanes.get(lane) if lane else max(of_lanes.values(), default=None)


def _divided(rows: pa.Table, registry: Registry, by: Sequence[str]) -> Iterator[tuple[dict[str, Any], pa.Table]]:
    """Yield the rows of each group, with the names and values of its key."""
    if not len(rows):
        return
    if TYPE in by:
        devices = rows.column("device").combine_chunks().dictionary_encode()
        types = pa.array([registry.get(name, _UNKNOWN).type or None for name in devices.dictionary.to_pylist()], pa.string())
        rows = rows.append_column(TYPE, types.take(devices.indices))
    columns = ["heard" if each == DAY else each for each in by]
    # A group's rows stand together after this, so that each group is a slice.
    ordered = rows.sort_by([(name, "ascending") for name in columns])
    counted = ordered.group_by(columns, use_threads=False).aggregate([([], "count_all")])
    begin = 0
    for each in counted.to_pylist():
        key = {name: _text(each[column]) for name, column in zip(by, columns, strict=True)}
        yield key, ordered.slice(begin, each["count_all"])
        begin += each["count_all"]


def _counts(lists: pa.ChunkedArray) -> dict[int, int]:
    """Return a histogram as the number of events by bound."""
    flat = pc.list_flatten(lists)
    parts = pa.table([pc.struct_field(flat, 0), pc.struct_field(flat, 1)], names=["bound", "events"])
    found = parts.group_by("bound").aggregate([("events", "sum")])
    return dict(zip(found.column("bound").to_pylist(), found.column("events_sum").to_pylist(), strict=True))


def _part(counts: Mapping[int, int], share: float, most_ms: int) -> float | None:
    bound_ms = percentile(counts, share)
    return None if bound_ms is None else min(bound_ms, most_ms) / _MS


def _total(rows: pa.Table, name: str) -> int:
    return int(pc.sum(rows.column(name)).as_py() or 0)


def _most(rows: pa.Table, name: str) -> int:
    return int(pc.max(rows.column(name)).as_py() or 0)


def _share(part: int, whole: int) -> float | None:
    return round(part / whole, 4) if whole else None


def _text(value: Any) -> Any:
    return value.isoformat() if hasattr(value, "isoformat") else value or None
