"""What is encoded here is read by proton: every section, every type, every length of a value."""

import uuid

import proton
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fogline.amqp.wire import as_int, decode, encode
from fogline.message import Message

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=300)
SYMBOL = st.text(st.characters(codec="ascii", categories=["L", "N", "P"]), min_size=1, max_size=300).filter(
    lambda text: text != "None"
)
ID = st.one_of(TEXT, st.integers(0, 2**64 - 1), st.uuids(), st.binary(min_size=1, max_size=300))
VALUE = st.one_of(
    st.none(), st.booleans(), TEXT, st.integers(-(2**63), 2**64 - 1), st.binary(max_size=300), st.floats(allow_nan=False)
)
MESSAGES = st.builds(
    Message,
    body=st.binary(max_size=70_000),
    to=st.none() | TEXT,
    subject=st.none() | TEXT,
    reply_to=st.none() | TEXT,
    message_id=st.none() | ID,
    correlation_id=st.none() | ID,
    content_type=st.none() | SYMBOL,
    content_encoding=st.none() | SYMBOL,
    durable=st.booleans(),
    ttl_ms=st.none() | st.integers(1, 2**32 - 1),
    properties=st.dictionaries(TEXT, VALUE, max_size=200),
)


@given(MESSAGES)
def test_any_message_is_read_as_it_was(message):
    assert decode(encode(message)) == message


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (True, bool),
        (7, int),
        (as_int(7), proton.int32),
        (-(2**63), int),
        (2**63, proton.ulong),
        (1.5, float),
        ("text", str),
        (b"bytes", memoryview),
        (None, type(None)),
    ],
)
def test_a_property_has_its_type_of_amqp(value, kind):
    native = proton.Message()
    native.decode(encode(Message(properties={"it": value})))
    assert type(native.properties["it"]) is kind
    assert native.properties["it"] == value


@pytest.mark.parametrize("value", ["text", 2**64 - 1, uuid.UUID(int=7), b"bytes"])
def test_an_id_has_its_type_of_amqp(value):
    native = proton.Message()
    native.decode(encode(Message(message_id=value, correlation_id=value)))
    kind = {str: str, int: int, uuid.UUID: uuid.UUID, bytes: memoryview}[type(value)]
    assert type(native.id) is type(native.correlation_id) is kind
    assert native.id == native.correlation_id == value


def test_content_type_and_encoding_are_symbols():
    native = proton.Message()
    native.decode(encode(Message(content_type="text/plain", content_encoding="zstd")))
    assert (native.content_type, native.content_encoding) == (proton.symbol("text/plain"), proton.symbol("zstd"))


def test_symbol_of_any_device_text_is_ascii():
    assert decode(encode(Message(content_type="te\u0445t/\ufffe\ud800"))).content_type == "te?t/??"


def test_a_time_to_live_beyond_its_type_is_the_longest():
    assert decode(encode(Message(ttl_ms=2**40))).ttl_ms == 2**32 - 1


def test_an_empty_message_has_a_header_properties_and_data():
    assert encode(Message()) == bytes.fromhex("005370 c0020142 005373 45 005375 a000")
