"""Rows of table `fleet` from rows of `events`, and from rows of `fleet`: both count up. Pure: Arrow in, Arrow out.

A group of rows with the same keys becomes one row. Counts are added, so it does not matter in which parts the events came.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fogline_cloud.fleet.buckets import AHEAD, BEHIND, DELAYS_MS, SIZES_BYTES
from fogline_cloud.flows.tables.schema import FLEET, FLEET_KEYS, EventOutcome, arrow_schema, names

STORED = arrow_schema(FLEET[:-1])
"""Columns of table `fleet` in its files."""
READ = (
    *("tenant", "device", "gateway", "lane", "adapter", "properties", "parser", "outcome", "reason", "detail"),
    *("ingested", "recordedtime", "timequality", "time", "size_bytes"),
)
"""Columns of `events` that a summary needs."""
TEXTS = ("tenant", "device", "gateway", "lane", "adapter", "parser", "outcome", "reason", "timequality")
"""Those with few different values, which are best read as dictionaries."""
_COUNTED = ("ok", "skip", "slow", "dead", "duplicate")
_SUMS = ("events", *_COUNTED, "bytes", "delayed", "ahead", "behind")
_MOST = ("most_bytes", "most_delay_ms", "last")
_KEYS = names(FLEET_KEYS)
_DAY_US = 86_400_000_000
_MAX_FIRMWARE = 64
_NOBODY = (EventOutcome.GAP.value, EventOutcome.STATEMENT.value, EventOutcome.CHUNK.value, EventOutcome.FORGOTTEN.value)
_NOT_BY_DEVICE = r"^command \S*: (REJECTED|EXPIRED|CANCELLED|IN_DOUBT) "  # the gateway's own report on a command (`decide`)
_FAR = 1 << 62
Numbers = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class _Steps:
    """A sparse histogram: so many `events` of a `row` in the step of a number."""

    row: Numbers
    step: Numbers
    events: Numbers


@dataclass(frozen=True, slots=True)
class _Parts:
    """Rows to group: `keys`, and numbers by the name of their column."""

    keys: pa.Table
    numbers: Mapping[str, Numbers]
    sizes: _Steps
    delays: _Steps


def rows_of_events(events: pa.Table) -> pa.Table:
    """Return the rows of `fleet`, without the day, for rows of `events` of one day with the columns `READ`."""
    return _grouped(_parts_of_events(events))


def added_up(rows: Iterable[pa.Table]) -> pa.Table:
    """Return rows of `fleet` of one day with each key once."""
    found = pa.concat_tables([STORED.empty_table(), *(each.select(STORED.names).cast(STORED) for each in rows)])
    return _grouped(_parts_of_rows(found))


def _parts_of_events(events: pa.Table) -> _Parts:
    by_device = _is_by_device(events)
    ingested, recorded = _us(events, "ingested"), _us(events, "recordedtime")
    known = by_device & _valid(events, "recordedtime") & ~_is(events, "timequality", ("unsynced",))
    heard = np.where(known, np.minimum(recorded, ingested), ingested)
    delay_ms = np.where(known, np.maximum(ingested - recorded, 0), 0) // 1000
    own = _us(events, "time") - recorded
    timed = known & _valid(events, "time")
    size = np.where(by_device, pc.fill_null(events.column("size_bytes"), 0).to_numpy(), 0)
    numbers = {
        "events": np.ones(len(events), np.int64),
        **{name: (by_device & _is(events, "outcome", (name,))).astype(np.int64) for name in _COUNTED},
        "bytes": size,
        "most_bytes": size,
        "first": heard,
        "last": heard,
        "delayed": known.astype(np.int64),
        "most_delay_ms": delay_ms,
        "ahead": (timed & (own > AHEAD.total_seconds() * 1e6)).astype(np.int64),
        "behind": (timed & (own < -BEHIND.total_seconds() * 1e6)).astype(np.int64),
    }
    return _Parts(
        _keys_of_events(events, by_device, heard // _DAY_US),
        numbers,
        _steps(by_device, size, SIZES_BYTES),
        _steps(known, delay_ms, DELAYS_MS),
    )


def _is_by_device(events: pa.Table) -> Flags:
    """Return which rows are of events that a device sent, as the registry of devices has it for `last_seen`."""
    reported = _is(events, "reason", ("reply",))
    if reported.any():
        told = pc.match_substring_regex(events.column("detail").cast(pa.string()), _NOT_BY_DEVICE)
        reported &= pc.fill_null(told, False).to_numpy()
    same = pc.equal(*(events.column(name).cast(pa.string()) for name in ("device", "gateway")))
    nobody: Flags = reduce(
        or_,
        (
            ~_valid(events, "device"),
            pc.fill_null(same, False).to_numpy(),
            _is(events, "outcome", _NOBODY),
            _is(events, "reason", ("notice",)),
            reported,
        ),
    )
    return ~nobody


def _keys_of_events(events: pa.Table, by_device: Flags, heard: Numbers) -> pa.Table:
    mask = pa.array(by_device)
    of_device = {
        name: pc.if_else(mask, column.cast(pa.string()), None) if not by_device.all() else column
        for name, column in (
            *((name, events.column(name)) for name in ("device", "adapter", "parser")),
            ("firmware", _firmware(events)),
        )
    }
    heard_day = pa.array(heard.astype(np.int32), pa.int32()).cast(pa.date32())
    every = {**{name: events.column(name) for name in ("tenant", "gateway", "lane")}, **of_device, "heard": heard_day}
    return pa.table({name: every[name] for name in _KEYS})


def _firmware(events: pa.Table) -> pa.ChunkedArray:
    """Return property `firmware`, by the rule of the registry of devices: printable, and not longer than 64 characters."""
    properties = events.column("properties")
    if properties.null_count == len(properties):
        return pa.chunked_array([pa.nulls(len(properties), pa.string())])
    found = pc.map_lookup(properties, pa.scalar("firmware"), "last").combine_chunks().dictionary_encode()
    usual = [
        text if text and len(text) <= _MAX_FIRMWARE and text.isprintable() else None for text in found.dictionary.to_pylist()
    ]
    return pa.chunked_array([pa.array(usual, pa.string()).take(found.indices)])


def _parts_of_rows(rows: pa.Table) -> _Parts:
    numbers = {name: pc.fill_null(rows.column(name), 0).to_numpy() for name in (*_SUMS, "most_bytes", "most_delay_ms")}
    numbers |= {name: _us(rows, name) for name in ("first", "last")}
    return _Parts(
        rows.select(_KEYS),
        numbers,
        _listed(rows.column("sizes"), SIZES_BYTES),
        _listed(rows.column("delays"), DELAYS_MS),
    )


def _grouped(parts: _Parts) -> pa.Table:
    group, first = _groups(parts.keys)
    count = len(first)
    columns: dict[str, pa.Array] = {
        name: parts.keys.column(name).take(pa.array(first)).cast(STORED.field(name).type) for name in _KEYS
    }
    for name in _SUMS:
        columns[name] = pa.array(np.bincount(group, parts.numbers[name], count).astype(np.int64))
    for name in _MOST:
        most = np.full(count, -_FAR)
        np.maximum.at(most, group, parts.numbers[name])
        columns[name] = pa.array(most).cast(STORED.field(name).type)
    least = np.full(count, _FAR)
    np.minimum.at(least, group, parts.numbers["first"])
    columns["first"] = pa.array(least).cast(STORED.field("first").type)
    columns["sizes"] = _lists(parts.sizes, group, count, SIZES_BYTES, STORED.field("sizes").type)
    columns["delays"] = _lists(parts.delays, group, count, DELAYS_MS, STORED.field("delays").type)
    return pa.table([columns[name] for name in STORED.names], schema=STORED)


def _groups(keys: pa.Table) -> tuple[Numbers, Numbers]:
    """Return the group of each row, and the first row of each group."""
    code, most = np.zeros(len(keys), np.int64), 1
    for name in keys.column_names:
        found, known = _codes(keys.column(name))
        if most * known >= _FAR:
            code, kinds = _kinds(code)
            most = len(kinds)
        code, most = code * known + found, most * known
    group, kinds = _kinds(code)
    first = np.zeros(len(kinds), np.int64)
    first[group[::-1]] = np.arange(len(group))[::-1]
    return group, first


def _kinds(values: Numbers) -> tuple[Numbers, Numbers]:
    """Return the number of each value among the different ones, and these."""
    encoded = pa.array(values).dictionary_encode()
    kinds: Numbers = encoded.dictionary.to_numpy()
    return encoded.indices.to_numpy().astype(np.int64), kinds


def _codes(column: pa.ChunkedArray) -> tuple[Numbers, int]:
    """Return a number for each value, 0 for null, and how many there are."""
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    array = encoded.unify_dictionaries().combine_chunks()
    array = array.chunk(0) if isinstance(array, pa.ChunkedArray) else array
    codes = pc.fill_null(pc.cast(array.indices, pa.int64()), -1).to_numpy() + 1
    return codes, len(array.dictionary) + 1


def _steps(some: Flags, values: Numbers, bounds: Numbers) -> _Steps:
    row = np.flatnonzero(some)
    step = np.minimum(np.searchsorted(bounds, values[row]), len(bounds) - 1)
    return _Steps(row, step, np.ones(len(row), np.int64))


def _listed(lists: pa.ChunkedArray, bounds: Numbers) -> _Steps:
    """Return the histograms of a column of `fleet`. An older step that is none any more counts as the next larger one."""
    flat = pc.list_flatten(lists).combine_chunks()
    flat = flat if isinstance(flat, pa.Array) else flat.chunk(0)
    row = pc.list_parent_indices(lists).to_numpy().astype(np.int64)
    bound, events = (pc.struct_field(flat, number).to_numpy(zero_copy_only=False) for number in (0, 1))
    return _Steps(row, np.minimum(np.searchsorted(bounds, bound), len(bounds) - 1), events)


def _lists(steps: _Steps, group: Numbers, count: int, bounds: Numbers, kind: pa.DataType) -> pa.Array:
    pairs, place = np.unique(group[steps.row] * len(bounds) + steps.step, return_inverse=True)
    events = np.bincount(place, steps.events, len(pairs)).astype(np.int64)
    offsets = np.searchsorted(pairs // len(bounds), np.arange(count + 1)).astype(np.int32)
    values = pa.StructArray.from_arrays([pa.array(bounds[pairs % len(bounds)]), pa.array(events)], fields=list(kind.value_type))
    return pa.ListArray.from_arrays(pa.array(offsets), values, type=kind)


def _is(events: pa.Table, name: str, values: Sequence[str]) -> Flags:
    column = events.column(name)
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    array = column.unify_dictionaries().combine_chunks()
    hit = pc.is_in(array.dictionary, pa.array(values, array.dictionary.type))
    found: Flags = pc.fill_null(hit.take(array.indices), False).to_numpy(zero_copy_only=False)
    return found


def _valid(events: pa.Table, name: str) -> Flags:
    found: Flags = events.column(name).is_valid().to_numpy()
    return found


def _us(events: pa.Table, name: str) -> Numbers:
    found: Numbers = pc.fill_null(events.column(name).cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()), 0).to_numpy()
    return found
