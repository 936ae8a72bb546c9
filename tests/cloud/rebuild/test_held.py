"""A flow goes on in another Kafka behind what its table has, and before the first record that it lacks."""

import pytest

from fogline.events.event import Lane
from fogline_cloud.kafka.records import COPIED, REBUILT, REPLAYED
from fogline_cloud.rebuild.held import HeldRecords, StreamTail, TableProgress

GATEWAY, OLD, NEW = "gw-1", "00000000000000aa", "00000000000000bb"
HERE, THERE = ("hono.telemetry.t", 0), ("hono.telemetry.t", 1)
CLIENT = ()


def record(stream, sequence, *marks):
    place = {"ce_gateway": GATEWAY, "ce_stream": stream, "ce_sequence": str(sequence), "ce_lane": "telemetry"}
    return [*((name, text.encode()) for name, text in place.items()), *((mark, b"true") for mark in marks)]


def old(last, *marks):
    return record(OLD, last, *marks)


def new(last):
    return record(NEW, last)


def copied(last):
    return old(last, REPLAYED, COPIED)


def position(log, tails, clients=0, first=0):
    """The position of a table in a partition with these records. `tails`: the last sequence of each stream in the table."""
    known = {(GATEWAY, stream, HERE[1]): StreamTail(Lane.TELEMETRY, last) for stream, last in tails.items()}
    held = HeldRecords({"events": TableProgress(known, {HERE: clients})})
    for offset, headers in enumerate(log, first):
        held.take(HERE, offset, headers, b"")
    return held.positions("events", {HERE: (first, first + len(log))})[HERE]


@pytest.mark.parametrize(
    ("log", "tails", "clients", "expected"),
    [
        ([old(1), old(2), old(3)], {OLD: 2}, 0, 2),
        ([old(1), old(2), old(3, REBUILT), new(1)], {OLD: 3}, 0, 3),
        ([old(1), CLIENT, CLIENT], {OLD: 1}, 1, 2),
        ([new(1), old(1), old(2)], {OLD: 2}, 0, 3),  # table raw names the last record of a partition alone
        ([old(1), new(1), copied(2), new(2)], {OLD: 2, NEW: 2}, 0, 4),  # a mirror brought what the table has
        ([old(1), copied(2), old(3, REBUILT)], {OLD: 1}, 0, 1),
    ],
)
def test_a_flow_goes_on_behind_the_last_record_that_its_table_has(log, tails, clients, expected):
    assert position(log, tails, clients) == expected


@pytest.mark.parametrize("brought", [old(3, REBUILT), copied(3)])
@pytest.mark.parametrize("marks", [{OLD: 3}, {OLD: 3, NEW: 1}])
def test_what_rebuild_has_appended_hides_no_record_of_a_bridge_that_ran_before_it(brought, marks):
    """The table had it from the lost Kafka, and lacks what a bridge has landed in this one meanwhile."""
    assert position([old(1), old(2), new(1), new(2), brought], marks) == 2 + marks.get(NEW, 0)


def test_a_stream_that_went_on_in_another_partition_is_read_in_both_as_far_as_the_table_has_each():
    """The flow was ahead in the partition of the new shard when the site was lost."""
    tails = {(GATEWAY, OLD, HERE[1]): StreamTail(Lane.TELEMETRY, 1), (GATEWAY, OLD, THERE[1]): StreamTail(Lane.TELEMETRY, 4)}
    held = HeldRecords({"events": TableProgress(tails)})
    for offset, sequence in enumerate((1, 2)):
        held.take(HERE, offset, old(sequence), b"")
    for offset, sequence in enumerate((3, 4, 5)):
        held.take(THERE, offset, old(sequence), b"")
    assert held.positions("events", {HERE: (0, 2), THERE: (0, 3)}) == {HERE: 1, THERE: 2}


@pytest.mark.parametrize("log", [[], [new(7)]])
def test_what_retention_has_deleted_in_the_mirror_is_not_asked_for(log):
    assert position(log, {OLD: 3}, first=500) == 500
