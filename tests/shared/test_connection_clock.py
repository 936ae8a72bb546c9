"""The end of a time to live, on the clock of the other side of a connection."""

import pytest
from msgspec.structs import replace

from fogline.connection_clock import CLOCK, DEADLINE, offset_of, time_left_ms, with_time_left
from fogline.message import Message

MESSAGE = Message(ttl_ms=30_000, properties={"idempotent": True})


def test_time_on_the_way_counts():
    """The bridge's clock is at 7,000 when it opens, the client's at 100. The message is sent at 1,100 and read 4 s later."""
    offset_ms = offset_of({CLOCK: 7000}, 100)
    sent = with_time_left(MESSAGE, ends_ms=11_100, now_ms=1100, offset_ms=offset_ms)
    assert (sent.ttl_ms, sent.properties) == (10_000, {"idempotent": True, DEADLINE: 18_000})
    assert time_left_ms(sent, 8000 + 4000) == 6000
    assert time_left_ms(sent, 8000 + 14_000) == 0


def test_an_open_frame_that_was_late_makes_the_end_earlier():
    """It took 500 ms."""
    sent = with_time_left(MESSAGE, ends_ms=11_100, now_ms=1100, offset_ms=offset_of({CLOCK: 7000}, 600))
    assert time_left_ms(sent, 8000) == 9500


def test_without_the_clock_of_the_bridge_the_ttl_alone_counts():
    assert offset_of({"clock-ms": "soon"}, 0) is None
    assert offset_of({CLOCK: True}, 0) is None
    forwarded = replace(MESSAGE, properties={DEADLINE: 5})
    sent = with_time_left(forwarded, ends_ms=11_100, now_ms=1100, offset_ms=None)
    assert (sent.ttl_ms, sent.properties) == (10_000, {}), "the end on the clock of another bridge means nothing here"
    assert time_left_ms(sent, 0) is None


@pytest.mark.parametrize("ends_ms", [1100, 0])
def test_a_message_whose_time_is_over_still_has_a_ttl(ends_ms):
    """AMQP: 0 would be none."""
    assert with_time_left(MESSAGE, ends_ms, now_ms=1100, offset_ms=None).ttl_ms == 1
    assert with_time_left(replace(MESSAGE, ttl_ms=None), ends_ms, now_ms=1100, offset_ms=None).ttl_ms is None
