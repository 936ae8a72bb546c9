"""Fields of a type that the standard does not give them: the engine's own error, whatever proton raises."""

import contextlib

import pytest

from fogline.amqp.wire import decode
from fogline.errors import Poison
from fogline_lab import amqp_bytes as raw
from shared.amqp.engine_peer import FIELDS, NULL, START, TERMINUS, Peer, fields_of, performative, terminus
from shared.amqp.odd_values import ODD_VALUES

ERROR = 0x1D


def before(what):
    """The frames that come before a performative."""
    places = {"open": 0, "begin": 1, "attach": 2, "flow": 3, "transfer": 3}
    return START[: places.get(what, 4)]


@pytest.mark.parametrize("odd", ODD_VALUES.values(), ids=ODD_VALUES.keys())
@pytest.mark.parametrize("what", FIELDS)
def test_b13_a_field_of_any_type_never_raises_out_of_the_engine(what, odd):
    for at in range(FIELDS[what]):
        peer = Peer()
        for frame in before(what):
            peer.take(frame)
        frame = performative(what, at, odd)
        peer.take(raw.opening("odd").removesuffix(raw.frame(raw.OPEN, raw.text("odd"))) + frame if what == "open" else frame)
        peer.take(performative("close"))
        peer.release()


@pytest.mark.parametrize("odd", ODD_VALUES.values(), ids=ODD_VALUES.keys())
def test_b13_a_terminus_or_an_error_with_a_field_of_any_type_never_raises(odd):
    frames = [
        raw.frame(raw.ATTACH, *fields_of("attach", place, terminus(which, at, odd)))
        for place, which in ((5, "source"), (6, "target"))
        for at in range(TERMINUS[which][1])
    ]
    frames += [
        raw.frame(raw.ATTACH, *fields_of("attach", 2, b"\x41")[:5], terminus("source", at, odd), terminus("target"))
        for at in range(11)
    ]
    errors = [raw.described(ERROR, raw.listed(*[NULL] * at, odd)) for at in range(3)]
    errors += [raw.described(ERROR, raw.listed(raw.symbol("a:b"), raw.text("why"), odd)), raw.described(ERROR, odd)]
    attached = [
        b"".join(START[2:]) + performative(what, at, error)
        for error in errors
        for what, at in (("detach", 2), ("end", 0), ("close", 0))
    ]
    for frame in frames + attached:
        peer = Peer()
        peer.take(b"".join(START[:2]))
        peer.take(frame)
        peer.take(performative("close"))
        assert peer.ended is not None
        peer.release()


SECTIONS = {"header": (0x70, 5), "properties": (0x73, 13)}
MAPS = {"delivery annotations": 0x71, "message annotations": 0x72, "application properties": 0x74, "footer": 0x78}
BODIES = {"data": 0x75, "sequence": 0x76, "value": 0x77}
BODY = raw.described(raw.DATA, b"\xa0\x01x")


def messages_with(odd):
    """A message with the value in each field, as each section, and inside of each map."""
    for code, size in SECTIONS.values():
        yield from (raw.described(code, raw.listed(*[NULL] * at, odd)) + BODY for at in range(size))
        yield raw.described(code, odd) + BODY
    for code in MAPS.values():
        yield raw.described(code, odd) + BODY
        yield raw.described(code, raw.mapped(raw.text("key"), odd)) + BODY
        yield raw.described(code, raw.mapped(odd, raw.text("value"))) + BODY
    yield from (raw.described(code, odd) for code in BODIES.values())
    yield odd + BODY


@pytest.mark.parametrize("odd", ODD_VALUES.values(), ids=ODD_VALUES.keys())
def test_b14_a_message_with_a_value_of_any_type_is_read_or_refused_and_nothing_else(odd):
    for data in messages_with(odd):
        with contextlib.suppress(Poison):
            message = decode(data)
            texts = [message.to, message.subject, message.reply_to, message.content_type, message.content_encoding]
            texts += [*message.properties, *message.properties.values(), message.message_id, message.correlation_id]
            for text in texts:
                assert not isinstance(text, str) or text.encode().decode() == text


def test_b13_properties_that_are_no_map_are_named_in_the_reason():
    peer = Peer()
    peer.take(raw.opening("odd", raw.listed(raw.text("a"))))
    assert str(peer.ended) == "amqp:decode-error: cannot be read: properties must be a map, not list"
    with pytest.raises(Poison, match="application properties must be a map, not list"):
        decode(raw.described(raw.APPLICATION_PROPERTIES, raw.listed(raw.text("a"))) + BODY)
