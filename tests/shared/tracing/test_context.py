"""W3C Trace Context: the traces that get spans."""

from urllib.parse import urlencode

import pytest

from fogline.events.codec import encode_event
from fogline.tracing.context import TraceContext, may_be_traced, sampled_context, trace_context
from fogline_lab.events import make_event

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.mark.parametrize(
    ("traceparent", "sampled"),
    [
        (f"00-{TRACE}-{PARENT}-01", True),
        (f"00-{TRACE}-{PARENT}-03", True),
        (f"cc-{TRACE}-{PARENT}-01", True),
        (f"cc-{TRACE}-{PARENT}-01-what-the-future-brings", True),
        (f"00-{TRACE}-{PARENT}-00", False),
        (f"00-{TRACE}-{PARENT}-02", False),
        (f"00-{TRACE}-{PARENT}-01-more", False),
        (f"ff-{TRACE}-{PARENT}-01", False),
        (f"00-{'0' * 32}-{PARENT}-01", False),
        (f"00-{TRACE}-{'0' * 16}-01", False),
        (f"00-{TRACE.upper()}-{PARENT}-01", False),
        (f"00-{TRACE[1:]}-{PARENT}-01", False),
        (f" 00-{TRACE}-{PARENT}-01", False),
        (f"00-{TRACE}-{PARENT}-01\n", False),
        ("00-1-2-01", False),
        ("", False),
    ],
)
def test_only_a_valid_and_sampled_traceparent_is_a_trace(traceparent, sampled):
    assert trace_context(traceparent) == (TraceContext(TRACE, PARENT) if sampled else None)


def test_of_a_repeated_name_the_last_counts_as_in_the_table():
    properties = f"traceparent=no&room=1&traceparent=00-{TRACE}-{PARENT}-01&tracestate={'x%3D1'}"
    assert sampled_context(properties) == TraceContext(TRACE, PARENT, "x=1")
    assert sampled_context(f"traceparent=00-{TRACE}-{PARENT}-01&traceparent=no") is None
    assert sampled_context("room=1") is None
    assert sampled_context(None) is None


def test_a_tracestate_that_is_too_long_is_left_out():
    properties = urlencode({"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "x=" + "y" * 511})
    assert sampled_context(properties) == TraceContext(TRACE, PARENT)


def test_a_stored_event_with_a_traceparent_is_found_without_decoding_it():
    assert may_be_traced(encode_event(make_event(properties=urlencode({"room": "1", "traceparent": "x"}))))
    assert not may_be_traced(encode_event(make_event(properties="room=1")))
