"""Batches: what goes in comes out, byte for byte, and nothing else is believed."""

import asyncio
import contextlib
import os

import msgspec
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from fogline.amqp import wire
from fogline.documents.json_payload import MAX_JSON_DEPTH, is_bare_json
from fogline.errors import Poison
from fogline.events.codec import (
    MAX_BODY_BYTES,
    Range,
    decode_batch,
    decode_beacon,
    decode_event,
    decode_range,
    encode_batch,
    encode_event,
)
from fogline.events.event import Lane, parse_rfc3339, rfc3339
from fogline.events.gap import GAP_CONTENT_TYPE, Gap, GapReason, above, decode_gap, encode_gap, gap_event
from fogline.message import Message
from fogline_edge.outbox.writer.event_template import fill_template, template_of
from fogline_lab.events import BEACON, STREAM, make_batch, make_event

JSON_LIKE = st.one_of(
    st.sampled_from([b"null", b"[]", b" {}", b"{}\n", b'{"a":1,"a":2}', b"NaN", b"[" * 2000, b'"\xff"', b"1 2", b""]),
    st.binary(max_size=60),
    st.recursive(st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(), st.lists, max_leaves=8).map(
        msgspec.json.encode
    ),
)


NASTY = st.text(max_size=30) | st.sampled_from(
    ['","recordedtime":"', '"id":"', '\\","sequence":', ',"lane":', '","datacontenttype":']
)


@given(JSON_LIKE, st.sampled_from(["application/json", "text/plain", 'x/y;a="data":0}']), NASTY, NASTY)
def test_an_event_written_by_its_frame_is_the_same_bytes(data, content_type, subject, kind):
    common = {"content_type": content_type, "subject": subject, "type": kind}
    event = make_event(7, data=data, **common)
    parts = template_of(make_event(1, data=b"other", **common))
    assert fill_template(parts, event.id, event.recordedtime, event.sequence, data) == encode_event(event)


@given(JSON_LIKE, st.sampled_from(["application/json", "application/senml+json; charset=utf-8", "text/plain", "", "x/y"]))
def test_a_payload_comes_back_byte_for_byte(data, content_type):
    event = make_event(data=data, content_type=content_type)
    assert decode_event(encode_event(event)) == event


def nested(depth: int) -> bytes:
    """JSON of that depth whose strings hold brackets too."""
    opened = [b"[", b'{"]\\"}":'] * depth
    return b"".join(opened[:depth]) + b'"[{"' + b"".join(b"]" if each == b"[" else b"}" for each in reversed(opened[:depth]))


@pytest.mark.parametrize("depth", [1, MAX_JSON_DEPTH, MAX_JSON_DEPTH + 1, 500, 1497, 9998, 50_000])
def test_json_deeper_than_the_limit_travels_as_base64_and_is_read(depth):
    """G1: Python's own depth limit let a gateway acknowledge what a bridge refused for ever."""
    event = make_event(data=nested(depth))
    row = encode_event(event)
    assert (b'"data":' in row) == (depth <= MAX_JSON_DEPTH)
    span, batch = make_batch(1, 1, data=event.data)
    assert decode_batch(span, batch)[0].data == event.data


def test_wide_json_still_travels_as_json():
    data = b"[" + b",".join([b'{"n":[1,"]"]}'] * 5000) + b"]"
    assert b'"data":[{' in encode_event(make_event(data=data))


@given(st.recursive(st.none() | st.text(max_size=3), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_the_depth_is_that_of_the_value(value):
    def depth(each) -> int:
        inner = each if isinstance(each, list) else each.values() if isinstance(each, dict) else None
        return 0 if inner is None else 1 + max(map(depth, inner), default=0)

    below = MAX_JSON_DEPTH - depth(value)
    for more, expected in ((below, True), (below + 1, False)):
        assert is_bare_json(b"[" * more + msgspec.json.encode(value) + b"]" * more) is expected


def test_a_row_that_is_nested_too_deep_is_refused():
    deep = b"[" * 100_000
    whole = encode_event(make_event(data=b"0")).replace(b'"data":0}', b'"data":' + nested(100_000) + b"}")
    for row in (whole, deep, b'{"data":' + deep, b'{"data":' + deep + b"}", b'{"subject":' + deep + b',"data":0}'):
        span, _ = make_batch(1, 1)
        with pytest.raises(Poison):
            decode_batch(span, encode_batch(span, [row], BEACON))


def test_json_travels_as_json_and_anything_else_as_base64():
    assert b'"data":{"a": 1}' in encode_event(make_event(data=b'{"a": 1}'))
    assert b'"data_base64":"eyJh"' in encode_event(make_event(data=b'{"a'))
    assert b'"data_base64":"MQ=="' in encode_event(make_event(data=b"1", content_type="text/plain"))


@given(st.integers(1, 50), st.integers(0, 20))
def test_a_batch_comes_back_through_amqp(first, more):
    span, message = make_batch(first, first + more)
    received = wire.decode(wire.encode(message))
    assert decode_range(received) == span
    assert decode_batch(span, received) == [make_event(sequence) for sequence in range(first, first + more + 1)]


def test_a_hundred_events_cost_few_bytes_each():
    _, message = make_batch(1, 100)
    assert len(wire.encode(message)) / 100 < 60


def broken(message: Message, **changes: object) -> Message:
    return msgspec.structs.replace(message, properties={**message.properties, **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {"first": 0},
        {"first": 9, "last": 3},
        {"first": "1"},
        {"last": None},
        {"chain": "zz"},
        {"lane": "tunnel"},
        {"gateway": 7},
        {"gateway": "g" * 65},
        {"stream": ""},
        {"stream": "s" * 65},
        {"last": 2**63},
        {"chain": "00" * 15},
        {"chain": "00" * 500_000},
    ],
    ids=lambda changes: str(changes)[:40],
)
def test_a_range_that_makes_no_sense_is_poison(changes):
    with pytest.raises(Poison):
        decode_range(broken(make_batch(1, 3)[1], **changes))


@pytest.mark.fault("S4")
@pytest.mark.parametrize(
    "changes",
    [
        {"boot": None},
        {"boot": "b" * 65},
        {"boot": ""},
        {"boottime": "1"},
        {"boottime": True},
        {"boottime": 2**63},
        {"boottime": -1},
    ],
    ids=str,
)
def test_clock_that_no_deadline_can_be_reckoned_in_is_poison(changes):
    """S4: a boot id that is none, a boottime that is no number or beyond every deadline."""
    with pytest.raises(Poison, match="boot id and boottime"):
        decode_beacon(broken(make_batch(1, 3)[1], **changes))


def test_another_content_type_is_poison():
    with pytest.raises(Poison, match="a lane takes"):
        decode_range(msgspec.structs.replace(make_batch(1, 3)[1], content_type="application/json"))


@pytest.mark.parametrize("lie", [(1, 2), (1, 4), (2, 4)], ids=str)
def test_a_range_that_lies_about_its_events_is_poison(lie):
    span, message = make_batch(1, 3)
    told = Range(span.gateway, span.stream, span.lane, *lie, span.chain)
    with pytest.raises(Poison):
        decode_batch(told, message)


@pytest.mark.parametrize("recordedtime", ["", "yesterday", "2026-01-02", "2026-01-02T03:04:05.000006"])
def test_a_moment_that_is_none_is_poison(recordedtime):
    span, message = make_batch(1, 1, recordedtime=recordedtime)
    with pytest.raises(Poison, match="recordedtime"):
        decode_batch(span, message)


def test_an_event_of_another_gateway_is_poison():
    span, _ = make_batch(1, 1)
    message = encode_batch(span, [encode_event(make_event(1, gateway="gw-2"))], BEACON)
    with pytest.raises(Poison, match="another stream or sequence"):
        decode_batch(span, message)


def gap_batch(first: int, last: int, *, gap: tuple[int, int] | bytes) -> tuple[Range, Message]:
    """A gap record that stands at `last - 1`, and one event after it."""
    body = gap if isinstance(gap, bytes) else encode_gap(Gap(GapReason.DROPPED, *gap))
    record = make_event(last - 1, content_type=GAP_CONTENT_TYPE, data=body)
    span = Range("gw-1", record.stream, record.lane, first, last, bytes(16))
    return span, encode_batch(span, [encode_event(record), encode_event(make_event(last))], BEACON)


def test_a_gap_record_stands_for_a_range_of_its_batch():
    events = decode_batch(*gap_batch(3, 11, gap=(3, 10)))
    assert [event.sequence for event in events] == [10, 11]


NOT_GAPS = {"garbage": b"garbage", "empty": b"{}", "not utf-8": b'{"detail":"\xff"}', "deep": b'{"x":' + b"[" * 99_999}


@pytest.mark.parametrize("gap", [(2, 10), (4, 10), (3, 9), (3, 11), *NOT_GAPS.values()], ids=[*"abcd", *NOT_GAPS])
def test_a_gap_record_of_another_range_than_its_place_is_poison(gap):
    with pytest.raises(Poison):
        decode_batch(*gap_batch(3, 11, gap=gap))


@given(st.integers(1, 30), st.integers(1, 30), st.integers(0, 60))
def test_events_above_a_sequence_begin_right_after_it(before, long, sequence):
    """Events 1 to `before`, a gap of `long` sequences, one event more."""
    last = before + long
    gap = gap_event(
        Gap(GapReason.DROPPED, before + 1, last), tenant="acme", gateway="gw-1", stream=STREAM, lane=Lane.BULK, now_ns=0
    )
    left = above([*map(make_event, range(1, before + 1)), gap, make_event(last + 1)], sequence)
    spans = [(decode_gap(e.data).first if e.type == "gap" else e.sequence, e.sequence) for e in left]
    covered = [number for first, end in spans for number in range(first, end + 1)]
    assert covered == list(range(sequence + 1, last + 2))
    assert len({event.id for event in left}) == len(left)


async def test_batches_may_be_made_in_many_threads_at_once():
    span, _ = make_batch(1, 1)
    events = [[encode_event(make_event(1, data=os.urandom(20_000)))] for _ in range(64)]

    def make(event):
        return [encode_batch(span, event, BEACON) for _ in range(20)]

    made = await asyncio.gather(*(asyncio.to_thread(make, event) for event in events))
    for event, messages in zip(events, made, strict=True):
        assert all(encode_event(decode_batch(span, each)[0]) == event[0] for each in messages)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"garbage",
        zstandard.compress(b"x" * (MAX_BODY_BYTES + 1)),
        zstandard.compress(b"[" * 100_000),
        zstandard.compress(b'[{"specversion":"1.0"}]'),
        zstandard.compress(b"\xff\xfe"),
    ],
    ids=["empty", "garbage", "bomb", "deep", "incomplete", "not utf-8"],
)
@pytest.mark.fault("D8")
def test_a_hostile_body_is_poison(body):
    span, message = make_batch(1, 1)
    with pytest.raises(Poison):
        decode_batch(span, msgspec.structs.replace(message, body=body))


@given(st.binary(max_size=300))
def test_any_bytes_are_a_message_or_poison(data):
    with contextlib.suppress(Poison):
        wire.decode(data)


@given(st.integers(0, 4_000_000_000_000_000_000))
def test_times_keep_their_microseconds(time_ns):
    assert parse_rfc3339(rfc3339(time_ns)) == time_ns // 1000 * 1000
