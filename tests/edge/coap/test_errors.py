"""G14: a request without a payload, and errors that are no larger than the request that they answer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.coap.client import block1, request
from fogline_edge.adapters.coap import exchanges, message_layer
from fogline_edge.adapters.coap.wire import CoapMessage, CoapResponse, Code, MessageType, Option, decode, encode, uint
from fogline_lab.port import MemoryPort

BARE = [
    CoapMessage(MessageType.CON, Code.GET, 1),
    CoapMessage(MessageType.CON, Code.PUT, 1, b"tokentok"),
    CoapMessage(MessageType.CON, Code.GET, 1, b"", ((Option.URI_PATH, b""),)),
    request("t", b""),
    request("t//d", b""),
    request("t/other/d"),
    request("t//d\x07"),
    request(options=[(65_001, b"")]),
    request("t//d", b"x" * 16, options=[block1(3, more=True)]),
    request("t//d", options=[(Option.SIZE1, b"\xff\xff\xff")]),
]


@pytest.mark.parametrize("message", BARE)
async def test_an_error_is_not_larger_than_its_request(listening, dial, message):
    """Nobody who sends under another's address has the gateway send more there than was sent to it."""
    async with listening(MemoryPort()) as listener:
        with dial(listener) as wire:
            answer = await wire.ask(message)
    assert answer.code >= Code.BAD_REQUEST
    assert len(encode(answer)) <= len(encode(message))


async def test_4_29_is_not_larger_than_its_request(listening, dial):
    async with listening(MemoryPort(), endpoint_rate_s=0.001, endpoint_burst=1) as listener:
        with dial(listener) as wire:
            assert (await wire.ask(request())).code == Code.CHANGED
            for mid, size in ((2, 4), (3, 40)):
                answer = await wire.ask(
                    CoapMessage(MessageType.CON, Code.PUT, mid, b"", ((Option.URI_PATH, b"t"),) if size > 4 else ())
                )
                assert answer.code == Code.TOO_MANY_REQUESTS
                assert len(encode(answer)) <= size


@given(st.integers(4, 40), st.binary(max_size=8), st.binary(max_size=20), st.booleans())
def test_diagnostic_text_is_cut_and_the_code_is_kept(size, token, payload, option):
    exchange = exchanges.Exchange(("::1", 5), CoapMessage(MessageType.CON, Code.PUT, 7, token), 0, 0.0, size + len(token))
    options = ((int(Option.MAX_AGE), uint(5)),) if option else ()
    for code in (Code.NOT_FOUND, Code.CHANGED):
        data = message_layer._encoded(MessageType.ACK, 7, exchange, CoapResponse(code, options, payload), again=False)
        found = decode(data)
        assert (found.kind, found.code, found.mid, found.token) == (MessageType.ACK, code, 7, token)
        if code == Code.CHANGED or len(data) == len(encode(CoapMessage(MessageType.ACK, code, 7, token, options, payload))):
            assert (found.options, found.payload) == (options, payload)
        else:
            assert len(data) <= exchange.size
            assert found.payload == b""


@pytest.mark.parametrize("code", [Code.PUT, Code.POST])
async def test_a_request_without_a_payload_is_taken_if_it_says_so(listening, dial, code):
    port = MemoryPort()
    async with listening(port) as listener:
        with dial(listener) as wire:
            assert (await wire.ask(request(payload=b"", code=code))).code == Code.BAD_REQUEST
            assert port.arrivals == []
            assert (await wire.ask(request(payload=b"", code=code, mid=2, query=["empty", "a=b"]))).code == Code.CHANGED
    (arrival,) = port.arrivals
    assert (arrival.data, arrival.properties) == (b"", "a=b")
