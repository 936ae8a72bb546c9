"""Datagrams to messages and back."""

import aiocoap
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fogline_edge.adapters.coap.wire import (
    MAX_OPTIONS,
    CoapMessage,
    Code,
    FormatError,
    MessageType,
    Option,
    decode,
    encode,
    uint,
)

messages = st.builds(
    CoapMessage,
    kind=st.sampled_from(list(MessageType)),
    code=st.integers(1, 255),
    mid=st.integers(0, 65_535),
    token=st.binary(max_size=8),
    options=st.lists(st.tuples(st.integers(0, 65_535), st.binary(max_size=300)), max_size=10).map(
        lambda options: tuple(sorted(options, key=lambda each: each[0]))
    ),
    payload=st.binary(max_size=100),
)


@given(messages)
def test_encoded_message_decodes_to_the_same(message):
    assert decode(encode(message)) == message


@given(st.binary(max_size=64))
def test_any_bytes_are_a_message_or_a_format_error(data):
    try:
        message = decode(data)
    except FormatError:
        return
    assert decode(encode(message)) == message


def test_other_implementation_decodes_our_encoding():
    options = ((Option.URI_PATH, b"telemetry"), (Option.CONTENT_FORMAT, uint(50)), (Option.SIZE1, uint(262_144)))
    read = aiocoap.Message.decode(encode(CoapMessage(MessageType.CON, Code.PUT, 7, b"tok", options, b"{}")))
    assert (read.code, read.mid, read.token, read.payload) == (aiocoap.PUT, 7, b"tok", b"{}")
    assert (read.opt.uri_path, int(read.opt.content_format), read.opt.size1) == (("telemetry",), 50, 262_144)


@pytest.mark.parametrize(
    "data",
    [
        "40 03 0001 ff",
        "49 03 0001 000000000000000000",
        "4f 03 0001 000000000000000000000000000000",
        "44 03 0001 0000",
        "41 00 0001 00",
        "40 00 0001 b161",
        "40 03 0001 b5 61",
        "40 03 0001 f0",
        "40 03 0001 0f",
        "40 03 0001 d0",
        "40 03 0001 e0 00",
        "40 03 0001 e0 ffff e0 ffff",
        "40 03 0001" + "00" * (MAX_OPTIONS + 1),
    ],
)
def test_a_confirmable_message_with_a_format_error_is_to_be_rejected(data):
    with pytest.raises(FormatError) as refused:
        decode(bytes.fromhex(data))
    assert refused.value.reject == 1


@pytest.mark.parametrize("data", ["", "40", "400300", "00030001", "80030001", "c0030001ff", "50030001ff", "60030001ff"])
def test_datagram_that_is_not_a_confirmable_coap_message_is_not_rejected(data):
    with pytest.raises(FormatError) as refused:
        decode(bytes.fromhex(data))
    assert refused.value.reject is None
