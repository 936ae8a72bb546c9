"""WebSocket without IO (RFC 6455): both sides, as a transcript, and peers that break its rules."""

import base64
import contextlib
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fogline.amqp.security import SUBPROTOCOL
from fogline.transport.websocket import WebSocket
from fogline.transport.websocket_handshake import OriginRule
from fogline.transport.websocket_request import WebSocketError, WebSocketRequest

KEY = b"dGhlIHNhbXBsZSBub25jZQ=="
ACCEPT = base64.b64encode(hashlib.sha1(KEY + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
HEAD = (
    b"GET /amqp HTTP/1.1\r\nHost: fog.example\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: " + KEY + b"\r\nSec-WebSocket-Version: 13\r\n"
)
REQUEST = HEAD + b"Sec-WebSocket-Protocol: binary, amqp\r\n\r\n"


def new_client():
    return WebSocket(SUBPROTOCOL, WebSocketRequest("fog.example", "/amqp"))


def new_server():
    return WebSocket(SUBPROTOCOL, OriginRule(secure=True, loopback=False))


def opened():
    """Return a client and a server whose handshake is over."""
    client, server = new_client(), new_server()
    server.receive(client.data_to_send())
    client.receive(server.data_to_send())
    assert client.ready
    assert server.ready
    return client, server


def masked(opcode, payload, *, fin=True):
    """A client's frame, with the mask 0."""
    assert len(payload) < 126
    return bytes((opcode | 0x80 * fin, 0x80 | len(payload))) + bytes(4) + payload


def test_a_server_accepts_the_subprotocol_and_proves_that_it_has_read_the_key():
    """RFC 6455 section 1.3 has key and answer."""
    server = new_server()
    assert server.receive(REQUEST) == b""
    answer = server.data_to_send().lower()
    assert answer.startswith(b"http/1.1 101 ")
    assert b"sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=\r\n" in answer
    assert ACCEPT == b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
    assert b"sec-websocket-protocol: amqp\r\n" in answer
    assert b"extensions" not in answer


def test_bytes_go_both_ways_in_frames_of_any_size():
    client, server = opened()
    for size in (0, 1, 125, 126, 8192, 65_535, 65_536, 300_000):
        data = bytes(range(256)) * (size // 256) + bytes(size % 256)
        assert server.receive(client.wrap(data)) == data
        assert client.receive(server.wrap(data)) == data


def test_a_client_masks_its_frames_and_a_server_does_not():
    client, server = opened()
    assert b"AMQP\x03" not in client.wrap(b"AMQP\x03\x01\x00\x00")
    assert server.wrap(b"AMQP\x03\x01\x00\x00") == b"\x82\x08AMQP\x03\x01\x00\x00"


@given(st.lists(st.binary(max_size=300), max_size=6), st.data())
def test_bytes_arrive_in_order_however_the_stream_is_cut(pieces, data):
    client, server = opened()
    stream = b"".join(client.wrap(each) for each in pieces)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(stream)), max_size=8)))
    got = [server.receive(stream[a:b]) for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert b"".join(got) == b"".join(pieces)


def test_a_part_of_a_frame_is_passed_on_before_the_frame_is_whole():
    client, server = opened()
    frame = client.wrap(bytes(100_000))
    assert len(server.receive(frame[:50_000])) > 49_900


def test_frames_behind_the_head_in_one_piece_are_read():
    server = new_server()
    assert server.receive(REQUEST + masked(2, b"AMQP")) == b"AMQP"
    client = new_client()
    asked = client.data_to_send()
    other = new_server()
    other.receive(asked)
    assert client.receive(other.data_to_send() + other.wrap(b"AMQP")) == b"AMQP"


def test_a_ping_is_answered_and_of_many_the_newest():
    _, server = opened()
    assert server.receive(masked(9, b"one") + masked(9, b"two") + masked(2, b"AMQP")) == b"AMQP"
    assert server.data_to_send() == b"\x8a\x03two"
    for _ in range(10_000):
        server.receive(masked(9, b"x" * 100))
    assert len(server.data_to_send()) == 102


def test_a_close_is_answered_and_nothing_follows_it():
    client, server = opened()
    client.close()
    assert client.wrap(b"more") == b""
    assert server.receive(client.data_to_send() + masked(2, b"late")) == b""
    assert server.over
    assert "1000" in server.why
    assert client.receive(server.data_to_send()) == b""
    assert client.over
    server.close()
    assert server.data_to_send() == b""


REFUSED = {
    "no subprotocol": (HEAD + b"\r\n", b"400", "does not offer the subprotocol amqp"),
    "another subprotocol": (HEAD + b"Sec-WebSocket-Protocol: mqtt\r\n\r\n", b"400", "does not offer the subprotocol amqp"),
    "another version": (REQUEST.replace(b"Version: 13", b"Version: 8"), b"426", "not of version 13"),
    "no key": (REQUEST.replace(b"Sec-WebSocket-Key", b"X"), b"400", "no key of 16 bytes"),
    "a plain request": (b"GET / HTTP/1.1\r\nHost: fog.example\r\n\r\n", b"426", "asks for no WebSocket"),
    "AMQP": (b"AMQP\x03\x01\x00\x00", b"400", "the client speaks AMQP without WebSocket"),
    "TLS": (b"\x16\x03\x01\x02\x00", b"400", "the client speaks TLS"),
    "another method": (b"POST / HTTP/1.1\r\nHost: fog.example\r\n\r\n", b"405", "opened with GET"),
    "no host": (REQUEST.replace(b"Host: fog.example\r\n", b""), b"400", ""),
    "a web page": (REQUEST[:-2] + b"Origin: https://evil.example\r\n\r\n", b"403", "origin is not allowed"),
    "no HTTP": (b"GET /\x00\x01\r\n\r\n", b"400", ""),
    "a long head": (REQUEST[:-2] + b"X: " + b"x" * 17_000 + b"\r\n\r\n", b"431", "8192"),
    "a head without an end": (REQUEST[:-2] + b"X: " + b"x" * 17_000, b"431", "8192"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_client_that_is_refused_reads_why(case):
    request, status, why = REFUSED[case]
    server = new_server()
    with pytest.raises(WebSocketError) as refused:
        server.receive(request)
    assert why in str(refused.value)
    assert str(refused.value).isprintable()
    answer = server.data_to_send()
    assert answer.startswith(b"HTTP/1.1 " + status)
    assert why.encode() in answer
    assert not server.ready


def test_a_page_of_the_server_itself_may_connect():
    server = new_server()
    server.receive(REQUEST[:-2] + b"Origin: https://fog.example\r\n\r\n")
    assert server.ready


@pytest.mark.parametrize("data", [b"AMQP\x03\x01\x00\x00", b"\x16\x03\x01\x02\x00", b"POST / HTTP/1.1\r\n", b"\x00"])
def test_a_server_that_does_not_speak_websocket_is_refused_by_its_first_bytes(data):
    with pytest.raises(WebSocketError, match="does not speak WebSocket"):
        new_client().receive(data)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"HTTP/1.1 404 Not Found\r\n\r\n", "status 404: the peer has no WebSocket there"),
        (b"HTTP/1.1 200 OK\r\n\r\n<html>", "status 200"),
        (b"HTTP/1.1 302 Found\r\nLocation: https://portal\r\n\r\n", "status 302: the peer sends to another address"),
        (b"HTTP/1.1 502 Bad Gateway\r\n\r\n", "status 502: what answers for the peer cannot reach it"),
        (b"HTTP/1.1 100 Continue\r\n\r\n", "status 100"),
        (b"HTTP/1.1 101 x\r\nUpgrade: websocket\r\nConnection: upgrade\r\nSec-WebSocket-Accept: x\r\n\r\n", "Bad accept token"),
        (b"HTTP/1.1 x\r\n\r\n", "Bad HTTP message"),
    ],
)
def test_a_server_without_websocket_is_named_as_such(answer, why):
    client = new_client()
    client.data_to_send()
    with pytest.raises(WebSocketError, match=why):
        client.receive(answer)


def test_a_server_that_does_not_choose_the_subprotocol_is_refused():
    client, server = new_client(), new_server()
    server.receive(client.data_to_send())
    answer = server.data_to_send()
    with pytest.raises(WebSocketError, match="does not speak 'amqp'"):
        client.receive(answer.replace(b"sec-websocket-protocol: amqp\r\n", b""))


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (masked(1, b"text"), 1003),
        (b"\x82\x04AMQP", 1002),
        (masked(3, b""), 1002),
        (masked(0x40 | 2, b"AMQP"), 1002),
        (masked(0, b"AMQP"), 1002),
        (masked(9, b"", fin=False), 1002),
        (b"\x82\xff" + b"\xff" * 8, 1002),
        (b"\x89\xfe\x01\x00", 1002),
        (masked(8, b"\x00"), 1002),
        (masked(8, b"\x03\xe7"), 1002),
    ],
    ids=["text", "no mask", "opcode", "extension bit", "continuation", "cut ping", "length", "long ping", "close", "code"],
)
def test_a_frame_against_the_rules_ends_the_connection_with_its_code(frame, code):
    _, server = opened()
    with pytest.raises(WebSocketError):
        server.receive(frame)
    assert server.data_to_send()[:4] == b"\x88\x02" + code.to_bytes(2, "big")


@given(st.booleans(), st.lists(st.binary(max_size=200), max_size=5), st.booleans())
def test_garbage_raises_one_error_only(is_open, pieces, is_server):
    client, server = opened() if is_open else (new_client(), new_server())
    side = server if is_server else client
    with contextlib.suppress(WebSocketError):
        if not is_open:
            side.receive(b"GET / HTTP/1.1\r\n" if is_server else b"HTTP/1.1 101 ")
        for each in pieces:
            side.receive(each)
            side.data_to_send()
