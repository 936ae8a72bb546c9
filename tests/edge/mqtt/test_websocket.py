"""MQTT over WebSocket, with and without TLS: the same server behind frames."""

import asyncio
import ssl

import pytest

from fogline.errors import Misconfigured
from fogline_edge.adapters.mqtt.protocol.packets import Connect, Disconnect, Publish
from fogline_edge.adapters.mqtt.protocol.primitives import V3, V5, Reason
from fogline_edge.adapters.mqtt.protocol.properties import Properties
from fogline_edge.adapters.mqtt.server.listener import MqttListener
from fogline_edge.listener_settings import WebSocketSettings
from fogline_edge.settings import MqttSettings
from fogline_lab.amqp import within
from fogline_lab.clock import pass_time
from fogline_lab.commands import MemoryCommands, make_command
from fogline_lab.credentials.mosquitto_passwords import password_file
from fogline_lab.credentials.mqtt_tls_files import PASSWORD, MqttTlsFiles
from fogline_lab.device.websocket_pipe import BINARY, CLOSE, CONTINUATION, PING, PONG, frame, opening
from fogline_lab.mqtt_packets import encode, puback
from fogline_lab.port import MemoryPort
from fogline_lab.waiting import eventually

WEB = {"websocket": WebSocketSettings(port=0)}
LASTING = Properties(session_expiry_s=7200)


@pytest.fixture
def secured(folder) -> MqttTlsFiles:
    return MqttTlsFiles(folder)


@pytest.fixture(params=["ws", "wss"])
def web(request, secured):
    """Settings of a listener, and what a client gives to `dial`."""
    if request.param == "ws":
        return WEB, {"web": True}
    return {**secured.settings(), **WEB}, {"web": True, "tls": secured.device("lamp-1")}


@pytest.mark.fault("C11")
@pytest.mark.parametrize("version", [V3, V5])
async def test_a_message_is_acknowledged_after_the_commit(web, listening, dial, version):
    settings, client = web
    port = MemoryPort()
    port.hold()
    async with (
        listening(port, **settings) as listener,
        dial(listener, "lamp-1", version=version, **client) as (wire, connack),
    ):
        assert connack.code == 0
        await wire.publish("telemetry", b"a")
        await port.until(lambda: port.waiting == 1, "it is put")
        port.release()
        assert await wire.receive() == puback(1)
    assert [(each.device, each.data) for each in port.arrivals] == [("lamp-1", b"a")]


async def test_a_packet_spans_frames_and_a_frame_holds_several_packets(web, listening, dial):
    """MQTT-6.0.0-2: no packet is aligned with a frame."""
    settings, client = web
    port = MemoryPort()
    packets = [encode(Publish(topic="t", payload=b"%d" % each, qos=1, packet_id=each), V5) for each in (1, 2, 3)]
    stream = b"".join(packets)
    async with listening(port, **settings) as listener, dial(listener, "lamp-1", **client) as (wire, _):
        pipe = wire.reader
        for at in range(0, len(stream), 5):
            pipe.write(stream[at : at + 5])
        pipe.write(stream)
        pipe.writer.write(frame(BINARY, stream[:7], fin=False) + frame(PING, b"between"))
        pipe.writer.write(frame(CONTINUATION, stream[7:9], fin=False) + frame(CONTINUATION, b"", fin=False))
        pipe.writer.write(frame(CONTINUATION, stream[9:]))
        assert [await wire.receive() for _ in range(9)] == [puback(each) for each in (1, 2, 3)] * 3
        assert pipe.pongs == [b"between"]
    assert [each.data for each in port.arrivals] == [b"1", b"2", b"3"] * 3


async def test_frames_that_come_byte_by_byte_are_read(web, listening, dial):
    settings, client = web
    async with listening(MemoryPort(), **settings) as listener, dial(listener, "lamp-1", **client) as (wire, _):
        for byte in frame(BINARY, encode(Publish(topic="t", payload=b"x" * 300, qos=1, packet_id=1), V5)):
            wire.reader.writer.write(bytes([byte]))
            await wire.reader.drain()
        assert await wire.receive() == puback(1)


async def test_a_large_message_and_a_large_command(web, listening, dial):
    settings, client = web
    port, commands, body = MemoryPort(), MemoryCommands(), bytes(range(256)) * 800
    async with listening(port, commands, **settings) as listener, dial(listener, "lamp-1", **client) as (wire, _):
        await wire.subscribe("command///req/#")
        await wire.publish("t", body)
        assert await wire.receive() == puback(1)
        commands.send(make_command(data=body))
        assert (await wire.receive()).payload == body
    assert body in [each.data for each in port.arrivals]


async def test_flooding_client_is_slowed_and_loses_nothing(web, listening, dial):
    settings, client = web
    port = MemoryPort(capacity=5)
    port.hold()
    numbers = range(1, 2001)
    async with listening(port, **settings) as listener, dial(listener, "lamp-1", **client) as (wire, _):
        packets = [Publish(topic="t", payload=b"%d" % each * 50, qos=1, packet_id=each) for each in numbers]
        sending = asyncio.create_task(wire.send(*packets))
        await port.until(lambda: port.waiting == 5, "the port is full")
        port.release()
        assert [await wire.receive() for _ in numbers] == [puback(each) for each in numbers]
        await sending
    assert [each.data for each in port.arrivals] == [b"%d" % each * 50 for each in numbers]


async def test_a_session_goes_on_with_and_without_websocket(secured, listening, dial):
    login = {"username": "lamp-1", "password": PASSWORD, "properties": LASTING, "clean_start": False}
    async with listening(MemoryPort(), **{**secured.settings(), **WEB, "port": 0}) as listener:
        assert list(listener.addresses) == ["mqtt", "mqtts", "mqtt-wss"]
        async with dial(listener, "x", tls=secured.trusting(), web=True, **login) as (old, connack):
            assert not connack.session_present
            async with dial(listener, "x", **login) as (_, again):
                assert again.session_present
                assert await old.receive() == Disconnect(code=Reason.SESSION_TAKEN_OVER)
                assert await old.receive() is None
                assert old.reader.closed == 1000
            async with dial(listener, "x", tls=secured.device("lamp-1"), web=True, **login) as (_, again):
                assert again.session_present


async def test_a_device_that_disconnects_gets_the_close_of_the_websocket(web, listening, dial):
    settings, client = web
    async with listening(MemoryPort(), **settings) as listener, dial(listener, "lamp-1", **client) as (wire, _):
        await wire.send(Disconnect(code=Reason.SUCCESS))
        assert await wire.receive() is None
        assert wire.reader.closed == 1000
        await eventually(lambda: listener.counters.connected == 0, "it is closed")
        assert listener.counters.left == 1


async def test_a_device_that_closes_the_websocket_without_a_disconnect_is_lost_and_gets_its_close(web, listening, dial):
    settings, client = web
    async with listening(MemoryPort(), **settings) as listener, dial(listener, "lamp-1", **client) as (wire, _):
        wire.reader.writer.write(frame(CLOSE, (1001).to_bytes(2, "big")))
        assert await wire.receive() is None
        assert wire.reader.closed == 1001
        assert await within(wire.reader.reader.read(), "the server does not close") == b""
        await eventually(lambda: listener.counters.lost == 1, "the end is noticed")


async def test_a_listener_that_ends_closes_its_websockets(web, listening, dial):
    settings, client = web
    async with listening(MemoryPort(), **settings) as listener, dial(listener, "lamp-1", **client) as (wire, _):
        closing = asyncio.create_task(listener.close())
        assert await wire.receive() == Disconnect(code=Reason.SERVER_SHUTTING_DOWN)
        assert await wire.receive() is None
        assert wire.reader.closed == 1000
        await closing


async def test_a_client_that_never_reads_is_ended(web, listening, dial):
    settings, client = web
    commands = MemoryCommands()
    async with listening(MemoryPort(), commands, **settings) as listener, dial(listener, "lamp-1", **client) as (wire, _):
        await wire.subscribe("command///req/#")
        pipe = wire.reader
        below = getattr(pipe.transport, "_ssl_protocol", None)
        (pipe.transport if below is None else below._transport).pause_reading()
        pipe.writer.write(frame(PING, b"x" * 125) * 20_000)
        await eventually(lambda: listener.counters.connected == 0, "it is ended")
        assert listener.counters.slow_reader == 1


async def test_a_ping_is_answered_with_its_bytes_and_a_pong_is_ignored(web, listening, dial):
    settings, client = web
    async with listening(MemoryPort(), **settings) as listener, dial(listener, "lamp-1", **client) as (wire, _):
        wire.reader.writer.write(frame(PONG, b"nobody asked") + frame(PING, b"a") + frame(PING))
        await wire.alive()
        assert wire.reader.pongs == [b"a", b""]


async def test_pings_of_websocket_do_not_keep_an_mqtt_session_alive(listening, dial):
    async with listening(MemoryPort(), **WEB) as listener, dial(listener, "x", web=True, keep_alive_s=10) as (wire, _):
        pass_time(9)
        wire.reader.writer.write(frame(PING))
        await wire.reader.drain()
        pass_time(7)
        assert await wire.receive() == Disconnect(code=Reason.KEEP_ALIVE_TIMEOUT)


async def test_the_first_frames_may_come_with_the_handshake(listening):
    async with listening(MemoryPort(), **WEB) as listener:
        reader, writer = await asyncio.open_connection(*listener.addresses["mqtt-ws"])
        writer.write(opening() + frame(BINARY, encode(Connect(version=V3, client_id="x"), V3)))
        await within(reader.readuntil(b"\r\n\r\n"), "no handshake")
        connack = await within(reader.readexactly(6), "no CONNACK")
        assert connack == frame(BINARY, b"\x20\x02\x00\x00", mask=None)
        writer.transport.abort()


async def test_a_deleted_user_loses_its_websocket(secured, listening, dial, monkeypatch):
    async with listening(MemoryPort(), **secured.settings(), **WEB) as listener:
        login = {"username": "lamp-1", "password": PASSWORD}
        async with dial(listener, "x", tls=secured.trusting(), web=True, **login) as (wire, connack):
            assert connack.code == 0
            password_file(secured.folder / "mqtt", hub="one")
            pass_time(10)
            assert await wire.receive() == Disconnect(code=Reason.NOT_AUTHORIZED)


async def test_http_1_1_is_agreed_upon_for_websocket(secured, listening, dial):
    context = secured.device()
    context.set_alpn_protocols(["h2", "http/1.1"])
    async with (
        listening(MemoryPort(), **secured.settings(), **WEB) as listener,
        dial(listener, "x", tls=context, web=True) as (wire, _),
    ):
        found: ssl.SSLObject = wire.writer.get_extra_info("ssl_object")
        assert found.selected_alpn_protocol() == "http/1.1"


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"websocket": WebSocketSettings(host="0.0.0.0", port=0)}, r"mqtt\.websocket\.host = '0\.0\.0\.0': without a login"),
        (
            {"websocket": WebSocketSettings(host="0.0.0.0", port=0), "users": True},
            r"mqtt\.websocket\.host = '0\.0\.0\.0': .*clear text",
        ),
    ],
)
async def test_a_network_without_tls_is_refused(folder, settings, says):
    if "users" in settings:
        settings = {**settings, "users": password_file(folder, hub="one")}
    with pytest.raises(Misconfigured, match=says):
        await MqttListener(MemoryPort(), MqttSettings(port=0, **settings)).start()


async def test_beside_tls_a_web_server_on_this_machine_may_speak_it(secured, listening, dial):
    web = WebSocketSettings(port=0, plain=True)
    async with listening(MemoryPort(), **secured.settings(websocket=web)) as listener:
        assert listener.addresses["mqtt-ws"][0] == "127.0.0.1"
        async with dial(listener, "x", web=True, username="lamp-1", password=PASSWORD) as (_, connack):
            assert connack.code == 0
        async with dial(listener, "x", web=True) as (_, connack):
            assert connack.code == Reason.NOT_AUTHORIZED
