"""Transcripts of batches and outcomes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fogline.amqp.outcome import (
    ACCEPTED,
    CLOSED_STREAM,
    DECODE_ERROR,
    MODIFIED,
    RELEASED,
    RESOURCE_LIMIT,
    UNKNOWN,
    UNKNOWN_STREAM,
    rejected,
)
from fogline_edge.uplink.window import Halve, HelloAgain, InflightWindow, PauseSending, QuarantineEvent, Settle

REFUSED = rejected(DECODE_ERROR, "no")


def sending(batches: int, size: int = 10) -> InflightWindow:
    window = InflightWindow(0, size, 4)
    for _ in range(batches):
        window.push(window.sent + 1, window.sent + size, size)
    return window


def test_several_batches_fly_and_settle_in_order():
    window = sending(4)
    assert window.limit == 0
    assert window.outcome(ACCEPTED) == Settle(10)
    assert window.limit == 10
    assert window.outcome(ACCEPTED) == Settle(20)


def test_it_opens_with_one_small_batch_and_doubles():
    window, sizes = InflightWindow(0, 100, 4), []
    for _ in range(4):
        sizes.append(window.limit)
        window.push(window.sent + 1, window.sent + window.limit, window.limit)
        assert window.limit == (0 if sizes[-1] < 100 else 100)
        window.outcome(ACCEPTED)
    assert sizes == [16, 32, 64, 100]


def test_anything_but_accepted_goes_back_to_the_lowest_unconfirmed():
    for outcome in (RELEASED, MODIFIED, UNKNOWN, rejected(RESOURCE_LIMIT, "later")):
        window = sending(3)
        window.outcome(ACCEPTED)
        assert isinstance(window.outcome(outcome), PauseSending)
        assert (window.sent, window.flying, window.settled) == (10, 0, 10)


@pytest.mark.parametrize("condition", [UNKNOWN_STREAM, CLOSED_STREAM])
def test_a_stream_that_the_bridge_does_not_know_or_has_closed_needs_a_hello(condition):
    assert isinstance(sending(1).outcome(rejected(condition, "")), HelloAgain)


def test_batches_stay_small_up_to_the_last_row_of_the_refused_one():
    window = sending(1)
    assert isinstance(window.outcome(REFUSED), Halve)
    for last in (4, 9):
        assert window.limit == 5
        window.push(window.sent + 1, last, last - window.sent)
        window.outcome(ACCEPTED)
    assert window.limit == 5
    window.push(10, 10, 1)
    window.outcome(ACCEPTED)
    assert window.limit == 10


@given(st.integers(1, 100), st.sets(st.integers(1, 300), max_size=5))
def test_halving_finds_every_refused_row_and_no_other(size, refused):
    window, quarantined = InflightWindow(0, size, 4), []
    for _ in range(5000):
        if window.settled >= 300:
            break
        while window.limit and window.sent < 300:
            last = min(300, window.sent + window.limit)
            window.push(window.sent + 1, last, last - window.sent)
        first, last = window.settled + 1, window._batches[0][1]
        bad = any(first <= row <= last and row not in quarantined for row in refused)
        effect = window.outcome(REFUSED if bad else ACCEPTED)
        if isinstance(effect, QuarantineEvent):
            quarantined.append(effect.sequence)
    assert window.settled == 300
    assert set(quarantined) == refused
    assert len(quarantined) == len(refused)
