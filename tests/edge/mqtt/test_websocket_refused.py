"""Peers of the WebSocket port that do not get in, or break the protocol: refused with the reason beside a good device."""

import asyncio
import gc

import pytest

from edge.mqtt.refused_peers import greeting
from edge.sockets.bad_peers import GARBAGE, HELLO, NO_HANDSHAKE, with_bytes, with_tls
from fogline.process.files import tls_files
from fogline_edge.adapters.mqtt.protocol.packets import Connect
from fogline_edge.adapters.mqtt.protocol.primitives import V5
from fogline_edge.listener_settings import WebSocketSettings
from fogline_lab.amqp import within
from fogline_lab.clock import pass_time
from fogline_lab.credentials.mqtt_tls_files import PASSWORD, MqttTlsFiles
from fogline_lab.device.websocket_pipe import BINARY, CLOSE, CONTINUATION, PING, TEXT, frame, opening
from fogline_lab.memory import resident_bytes
from fogline_lab.mqtt_packets import encode, puback
from fogline_lab.port import MemoryPort
from fogline_lab.waiting import eventually

WEB = {"websocket": WebSocketSettings(port=0)}
FLAT_BYTES = 3_000_000
CONNECT = encode(Connect(version=V5, client_id="evil"), V5)


@pytest.fixture
def secured(folder, monkeypatch) -> MqttTlsFiles:
    monkeypatch.setattr(tls_files, "QUIET_S", 0)
    return MqttTlsFiles(folder)


PLAIN = {
    "plain MQTT": (CONNECT, "the client speaks MQTT without WebSocket"),
    "TLS": (HELLO, "the client speaks TLS, and this port does not"),
    "garbage": (GARBAGE, "the client does not speak HTTP/1.1"),
    "no subprotocol": (opening(Sec_WebSocket_Protocol=None), "does not offer the subprotocol mqtt"),
    "an old version": (opening(Sec_WebSocket_Version="8"), "not of version 13"),
    "an oversize field": (opening(x="y" * 20_000), "more than 8192 bytes"),
    "a page": (opening(Origin="https://evil.example"), "origin is not allowed"),
    "a request for a page": (b"GET / HTTP/1.1\r\nHost: gw\r\n\r\n", "the path is not /mqtt"),
}


@pytest.mark.fault("S5")
@pytest.mark.parametrize(("sent", "why"), PLAIN.values(), ids=PLAIN)
async def test_a_peer_is_refused_with_the_reason_and_a_good_device_is_served_beside_it(listening, dial, refusals, sent, why):
    port = MemoryPort()
    async with listening(port, **WEB) as listener, dial(listener, "good", web=True) as (wire, _):
        reader, writer = await asyncio.open_connection(*listener.addresses["mqtt-ws"])
        writer.write(sent)
        assert (await within(reader.read(), "it is not ended")).startswith(b"HTTP/1.1 4")
        writer.close()
        assert len(refusals) == 1
        assert why in refusals[0]
        assert listener.counters.refused == 1
        await eventually(lambda: listener.counters.connected == 1, "only the good one is left")
        await wire.publish("t", b"good")
        assert await wire.receive() == puback(1)
    assert [each.data for each in port.arrivals] == [b"good"]


@pytest.mark.parametrize("sent", [b"", opening()[:-2], opening()], ids=["silent", "half a handshake", "no CONNECT"])
async def test_a_peer_that_does_not_come_to_its_connect_is_ended_in_time(listening, refusals, sent):
    async with listening(MemoryPort(), **WEB) as listener:
        reader, writer = await asyncio.open_connection(*listener.addresses["mqtt-ws"])
        writer.write(sent)
        if sent == opening():
            await within(reader.readuntil(b"\r\n\r\n"), "no handshake")
        else:
            await eventually(lambda: listener.counters.connected == 1, "it is accepted")
        pass_time(10)
        await within(reader.read(), "it stays")
        awaited = "the client sent no CONNECT in time" if sent == opening() else "the WebSocket handshake did not end in time"
        assert awaited in refusals[0]
        writer.close()


@pytest.mark.fault("S5")
@pytest.mark.parametrize(("make", "why"), NO_HANDSHAKE.values(), ids=NO_HANDSHAKE)
async def test_the_handshake_of_tls_comes_first(secured, listening, refusals, make, why):
    async with listening(MemoryPort(), **secured.settings(), **WEB) as listener:
        await with_tls(make, opening())(secured, listener.addresses["mqtt-wss"])
        await eventually(lambda: refusals, "the log says why")
        assert why in refusals[0]
        await with_bytes(opening())(secured, listener.addresses["mqtt-wss"])
        await eventually(lambda: len(refusals) == 2, "the log says why")
        assert "the peer does not speak TLS (it sent an HTTP request)" in refusals[1]
        reader, writer = await asyncio.open_connection(*listener.addresses["mqtt-wss"])
        writer.write(HELLO)
        await eventually(lambda: listener.counters.connections == 3, "it is accepted")
        pass_time(10)
        assert await within(reader.read(), "it stays") == b""
        assert "the TLS handshake did not end in time" in refusals[2]
        writer.close()


async def test_a_wrong_password_over_websocket_is_named(secured, listening, dial, refusals):
    async with listening(MemoryPort(), **secured.settings(), **WEB) as listener:
        login = {"username": "hub", "password": b"guess"}
        async with dial(listener, "x", tls=secured.trusting(), web=True, **login) as (_, connack):
            assert connack.code != 0
        assert "wrong user name or password" in refusals[0]


BROKEN = {
    "text": (frame(TEXT, b"hello"), 1003, "a text frame"),
    "text that is no UTF-8": (frame(TEXT, b"\xff\xfe"), 1007, "code 1007"),
    "no mask": (frame(BINARY, b"x", mask=None), 1002, "unmasked"),
    "an unknown opcode": (frame(3, b"x"), 1002, "opcode"),
    "a reserved bit": (frame(BINARY, b"x", reserved=4), 1002, "Reserved"),
    "a ping in parts": (frame(PING, b"x", fin=False), 1002, "fragment"),
    "a long ping": (frame(PING, b"x" * 126), 1002, "125"),
    "a continuation of nothing": (frame(CONTINUATION, b"x"), 1002, "CONTINUATION"),
    "a message within a message": (frame(BINARY, b"", fin=False) + frame(BINARY, b"x"), 1002, "CONTINUATION"),
    "a length of 64 bits": (bytes([0x82, 0xFF]) + b"\xff" * 8 + bytes(4), 1002, "ength"),
    "a short length written long": (bytes([0x82, 0xFE, 0, 5]) + bytes(9), 1002, "ength"),
}


@pytest.mark.parametrize(("sent", "code", "why"), BROKEN.values(), ids=BROKEN)
async def test_a_client_that_breaks_the_protocol_gets_the_code_and_the_log_the_reason(
    listening, dial, refusals, sent, code, why
):
    async with listening(MemoryPort(), **WEB) as listener, dial(listener, "bad", web=True) as (wire, _):
        wire.reader.writer.write(sent)
        assert await wire.receive() is None
        assert wire.reader.closed == code
        await eventually(lambda: listener.counters.connected == 0, "it is closed")
        assert (listener.counters.malformed, len(refusals)) == (1, 1)
        assert "WebSocket: " in refusals[0]
        assert why in refusals[0]


async def test_what_follows_a_close_is_not_read(listening, dial):
    port = MemoryPort()
    async with listening(port, **WEB) as listener, dial(listener, "bad", web=True) as (wire, _):
        late = encode_publish()
        wire.reader.writer.write(frame(CLOSE, (1000).to_bytes(2, "big")) + frame(BINARY, late))
        assert await wire.receive() is None
    assert port.arrivals == []


def encode_publish() -> bytes:
    return greeting()[len(encode(Connect(version=V5, client_id="evil"), V5)) :]


@pytest.mark.fault("S7")
async def test_handshakes_without_an_end_count_in_the_budget(listening, dial):
    async with listening(MemoryPort(), **WEB) as listener:
        reader, writer = await asyncio.open_connection(*listener.addresses["mqtt-ws"])
        writer.write(opening()[:-2] + b"x: " + b"y" * 5000)
        await eventually(lambda: listener.budget.held_bytes > 5000, "the handshake has begun")
        writer.write(b"\r\n\r\n")
        assert (await within(reader.readuntil(b"\r\n\r\n"), "no handshake")).startswith(b"HTTP/1.1 101 ")
        assert listener.budget.held_bytes == 0
        writer.transport.abort()


async def test_a_frame_is_never_held_whatever_length_it_declares(listening, dial):
    """Its bytes go on as they come: only an MQTT packet is kept until it is whole."""
    port, payload = MemoryPort(), bytes(8) + b"x" * 100_000
    packet = encode_large(payload)
    async with listening(port, **WEB) as listener, dial(listener, "large", web=True) as (wire, _):
        (connection,) = listener._by_client.values()
        endless = bytes([0x82, 0xFF]) + (2**62).to_bytes(8, "big") + bytes(4)
        wire.reader.writer.write(endless)
        for _ in range(20):
            wire.reader.writer.write(packet)
            assert await wire.receive() == puback(1)
        assert len(connection._transport.frames._proto._frame_decoder.buffer) == 0
    assert [each.data for each in port.arrivals] == [payload] * 20


def encode_large(payload: bytes) -> bytes:
    from fogline_edge.adapters.mqtt.protocol.packets import Publish

    return encode(Publish(topic="t", payload=payload, qos=1, packet_id=1), V5)


@pytest.mark.fault("S5")
async def test_a_thousand_handshakes_that_fail_or_never_end_leave_no_memory_behind(secured, listening, dial):
    settings = {**secured.settings(), "websocket": WebSocketSettings(port=0, plain=True), "max_connections": 50}
    refused = [with_bytes(sent) for sent, _ in PLAIN.values()]
    async with listening(MemoryPort(), **settings) as listener:
        address = listener.addresses["mqtt-ws"]

        async def storm() -> None:
            silent = [await asyncio.open_connection(*address) for _ in range(100)]
            for _, writer in silent[::2]:
                writer.write(opening()[:-2])
            for _ in range(25):
                await asyncio.gather(*(each(secured, address) for each in refused))
            for _, writer in silent:
                writer.transport.abort()
            await eventually(lambda: listener.counters.connected == 0, "all are gone")
            gc.collect()

        for _ in range(2):
            await storm()
        before = resident_bytes()
        storms = asyncio.create_task(storm())
        async with dial(listener, "good", web=True, username="hub", password=PASSWORD) as (wire, _):
            await wire.publish("t")
            assert await wire.receive() == puback(1)
            assert not storms.done(), "the good device is served after all that are refused"
        await storms
        grown = resident_bytes() - before
        print(f"{listener.counters.connections} connections: {grown / 1e6:+.1f} MB")
        assert listener.counters.connections > 800
        assert grown < FLAT_BYTES
