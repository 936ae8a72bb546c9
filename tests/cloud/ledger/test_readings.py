"""Comparison of readings with their events."""

from collections import Counter, defaultdict

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fogline_cloud.ledger import readings as readings_module
from fogline_cloud.ledger.arrow_rows import conformed
from fogline_cloud.ledger.readings import ReadingSums, differences

EVENT = st.tuples(st.sampled_from("ab"), st.integers(1, 6), st.integers(0, 3), st.sampled_from(["ok", "ok", "dead"]))
READING = st.tuples(st.sampled_from("abc"), st.integers(1, 7), st.sampled_from([0, 1, 2, None]))


def table_of(names, rows):
    columns = [["gw"] * len(rows), *([row[at] for row in rows] for at in range(len(names)))]
    return conformed(pa.table([pa.array(column) for column in columns], names=["gateway", *names]), ["gateway", *names])


def event_rows(events):
    return table_of(("stream", "sequence", "values", "outcome"), events)


def reading_rows(readings):
    return table_of(("stream", "sequence", "ordinal"), readings)


def expected(events, readings):
    """The differences, event by event."""
    wanted: dict[tuple[str, int], int] = {}
    for stream, sequence, values, outcome in events:
        wanted[stream, sequence] = max(wanted.get((stream, sequence), 0), values if outcome == "ok" else 0)
    there = defaultdict(Counter)
    for stream, sequence, ordinal in readings:
        there[stream, sequence].update([ordinal] if ordinal is not None else [])
    found = {"missing": set(), "double": set(), "phantom": set()}
    for event in wanted.keys() | there.keys():
        count, different = there[event].total(), len(there[event])
        if event not in wanted:
            found["phantom"].add(event)
            continue
        if different < wanted[event]:
            found["missing"].add(event)
        if count > min(different, wanted[event]):
            found["double"].add(event)
    return found


def compare(events, readings):
    sums = ReadingSums()
    sums.expect(event_rows(events))
    sums.find(reading_rows(readings))
    found = differences(sums.unequal(), lambda: [event_rows(events)], lambda: [reading_rows(readings)])
    return {
        kind: {
            (stream, sequence)
            for (_, stream), spans in getattr(found, kind).items()
            for first, last in spans.result().spans
            for sequence in range(first, last + 1)
        }
        for kind in ("missing", "double", "phantom")
    }


@given(st.lists(EVENT, max_size=12), st.lists(READING, max_size=12))
def test_differences_are_those_of_each_event(events, readings):
    assert compare(events, readings) == expected(events, readings)


@given(st.lists(EVENT, max_size=12, unique_by=lambda event: event[:2]), st.randoms())
def test_events_with_their_readings_are_equal_in_any_order(events, random):
    readings = [(stream, at, n) for stream, at, values, outcome in events if outcome == "ok" for n in range(values)]
    random.shuffle(readings)
    sums = ReadingSums()
    for reading in readings:
        sums.find(reading_rows([reading]))
    sums.expect(event_rows(events))
    assert sums.unequal() == []


@pytest.mark.parametrize("at_once", [1, 2, 512])
def test_ranges_that_differ_are_compared_some_at_a_time(monkeypatch, at_once):
    monkeypatch.setattr(readings_module, "_COMPARED_AT_ONCE", at_once)
    events = [("a", 5000 * n, 1, "ok") for n in range(1, 6)]
    assert compare(events, [("a", 10_000, 0)])["missing"] == {("a", 5000 * n) for n in (1, 3, 4, 5)}
