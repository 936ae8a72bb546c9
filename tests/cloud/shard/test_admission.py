"""Admission as a transcript: batches in, verdicts out."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from fogline.events.codec import Range
from fogline.events.event import Lane
from fogline_cloud.shard.admission import Admission, Covered, Duplicate, Foreign, Hole, Produce, StreamState


def span(first: int, last: int, lane: Lane = Lane.TELEMETRY, stream: str = "s") -> Range:
    return Range("gw", stream, lane, first, last, bytes([last % 256]) * 16)


def at(hwm: int) -> Admission:
    return Admission({("gw", "s"): StreamState(gateway="gw", stream="s", lane=Lane.TELEMETRY, hwm=hwm)})


def test_a_new_stream_begins_at_one():
    assert Admission({}).admit(span(1, 10)) == Produce(0)
    assert isinstance(Admission({}).admit(span(2, 10)), Foreign)


def test_a_batch_below_the_high_water_mark_is_a_duplicate():
    assert at(10).admit(span(1, 10)) == Duplicate()


def test_a_batch_that_straddles_the_high_water_mark_is_trimmed():
    assert at(10).admit(span(6, 15)) == Produce(5)


def test_a_batch_beyond_the_next_sequence_leaves_a_hole():
    assert at(10).admit(span(12, 15)) == Hole(11)


def test_a_batch_of_the_open_transaction_is_neither_committed_nor_written_twice():
    admission = at(10)
    assert admission.admit(span(11, 20)) == Produce(0)
    admission.wrote(span(11, 20))
    assert admission.admit(span(11, 20)) == Covered()
    assert admission.admit(span(16, 25)) == Produce(5)
    assert admission.known["gw", "s"].hwm == 10


def test_a_batch_of_one_event_is_written_if_it_is_the_next_one():
    admission = at(10)
    assert admission.admit(span(11, 11)) == Produce(0)
    admission.wrote(span(11, 11))
    assert admission.admit(span(11, 11)) == Covered()
    assert admission.admit(span(12, 12)) == Produce(0)


def test_refused_events_count_once():
    admission = at(10)
    admission.wrote(span(11, 20), refused=2)
    admission.committed(1)
    admission.wrote(span(21, 30))
    (known,) = admission.committed(2)
    assert (known.refused, known.landed) == (2, 20)


def test_a_commit_moves_the_mark_and_the_chain():
    admission = at(10)
    admission.admit(span(11, 20))
    admission.wrote(span(11, 20), refused=2)
    (known,) = admission.committed(1234)
    assert (known.hwm, known.chain_sequence, known.chain, known.landed, known.refused) == (20, 20, "14" * 16, 10, 2)
    assert known.changed_ms == 1234
    assert admission.admit(span(11, 20)) == Duplicate()


def test_only_the_batches_that_follow_the_last_hello_are_admitted():
    admission = at(10)
    former, last = (msgspec.structs.replace(span(11, 20), epoch=epoch) for epoch in ("one", "two"))
    assert admission.admit(former) == Produce(0), "no hello is known: this bridge has just taken the shard"
    admission.epochs["gw"] = "two"
    assert isinstance(admission.admit(former), Foreign)
    assert admission.admit(last) == admission.admit(span(11, 20)) == Produce(0), "a gateway may name none"


def test_a_stream_keeps_its_lane():
    assert isinstance(at(10).admit(span(11, 12, Lane.ALARM)), Foreign)


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(0, 30), st.sampled_from(["commit", "fail", "go on"])), max_size=60))
def test_every_sequence_lands_once_and_in_order_across_resends_and_aborts(steps):
    admission, landed, open_transaction = Admission({}), [], []
    for first, more, end in steps:
        batch = span(first, first + more)
        verdict = admission.admit(batch)
        if isinstance(verdict, Produce):
            admission.wrote(batch)
            open_transaction += range(first + verdict.skip, batch.last + 1)
        if end == "commit":
            admission.committed(1234)
            landed, open_transaction = landed + open_transaction, []
        if end == "fail":
            open_transaction = []
            known = {("gw", "s"): StreamState(gateway="gw", stream="s", lane=Lane.TELEMETRY, hwm=len(landed))} if landed else {}
            admission = Admission(known)
    assert landed == list(range(1, len(landed) + 1))
