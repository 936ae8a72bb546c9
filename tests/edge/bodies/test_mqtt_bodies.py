"""Large bodies over MQTT: a PUBLISH is stored as it comes, and acknowledged once."""

import asyncio
import contextlib

import pytest

from fogline.events.event import Lane
from fogline.events.large_body import read_dataref
from fogline_edge.adapters.mqtt.protocol.framing import Framer
from fogline_edge.adapters.mqtt.protocol.packets import Ack, Connack, Connect, Disconnect, Ping, Publish
from fogline_edge.adapters.mqtt.protocol.primitives import PacketType, Reason
from fogline_edge.adapters.mqtt.protocol.properties import Properties
from fogline_lab.device.mqtt_wire import MqttWire
from fogline_lab.large_bodies import join_bodies, make_body
from fogline_lab.mqtt_packets import encode
from fogline_lab.waiting import eventually

MIB = 1024 * 1024
LIMIT_S = 60.0


@contextlib.asynccontextmanager
async def dial(gateway, version=5, *, clean=True):
    reader, writer = await asyncio.open_connection(*gateway.mqtt.addresses["mqtt"])
    wire = MqttWire(reader, writer, version)
    await wire.send(Connect(version=version, client_id="camera-1", clean_start=clean))
    connack = await wire.receive()
    assert isinstance(connack, Connack)
    try:
        yield wire, connack
    finally:
        wire.cut()


def publish(body, *, qos=1, number=7, **more):
    return Publish(topic="telemetry", payload=body, qos=qos, packet_id=number if qos else 0, **more)


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("qos", [1, 2])
async def test_large_publish_is_stored_byte_for_byte_and_acknowledged_once(mqtt_gateway, version, qos):
    body = make_body(1, 2 * MIB)
    async with mqtt_gateway() as gateway, dial(gateway, version) as (wire, _):
        await wire.send(publish(body, qos=qos), Ping(PacketType.PINGREQ))
        kind = PacketType.PUBACK if qos == 1 else PacketType.PUBREC
        answers = [await wire.receive(), await wire.receive()]
        assert Ack(kind=kind, packet_id=7) in answers
        assert Ping(PacketType.PINGRESP) in answers
        ((event, stored),) = join_bodies(await gateway.stored()).whole
    assert stored == body
    assert (event.device, event.subject, event.lane, event.adapter, event.data) == (
        "camera-1",
        "telemetry",
        Lane.BULK,
        "mqtt",
        b"",
    )
    assert read_dataref(event.dataref).size == 2 * MIB


async def test_connack_grants_packets_as_large_as_a_body(mqtt_gateway):
    async with mqtt_gateway() as gateway, dial(gateway) as (_, connack):
        assert connack.properties.maximum_packet_bytes == 64 * MIB


@pytest.mark.fault("C2")
async def test_retransmission_with_dup_after_a_lost_puback_is_stored_once(mqtt_gateway):
    body = make_body(2, MIB)
    async with mqtt_gateway() as gateway, dial(gateway, clean=False) as (wire, _):
        await wire.send(publish(body))
        assert await wire.receive() == Ack(kind=PacketType.PUBACK, packet_id=7)
    async with mqtt_gateway() as gateway:  # what the gateway knows of deliveries ended with it
        async with dial(gateway, clean=False) as (wire, _):
            await wire.send(publish(body, dup=True))
            assert await wire.receive() == Ack(kind=PacketType.PUBACK, packet_id=7)
        joined = join_bodies(await gateway.stored())
    assert [data for _, data in joined.whole] == [body]
    assert (len(joined.ended), joined.open) == (1, set())


@pytest.mark.fault("C21")
async def test_client_that_leaves_in_the_middle_gets_no_puback_and_its_body_is_ended(mqtt_gateway):
    packet = encode(publish(make_body(3, MIB)), 5)
    async with mqtt_gateway() as gateway:
        async with dial(gateway) as (wire, _):
            await wire.send(packet[: MIB // 2])
            await eventually(lambda: gateway.uploads.counters.uploads == 1, "it has begun")
        await eventually(lambda: gateway.uploads.counters.given_up == 1, "it is given up")
        joined = join_bodies(await gateway.stored())
    assert (len(joined.ended), joined.open, joined.whole) == (1, set(), [])


async def test_properties_of_a_large_publish_are_those_of_a_small_one(mqtt_gateway):
    properties = Properties(
        content_type="image/jpeg", user=(("specversion", "1.0"), ("id", "boot7-1"), ("colour", "red")), message_expiry_s=60
    )
    async with mqtt_gateway() as gateway, dial(gateway) as (wire, _):
        for number in (1, 2):
            await wire.send(publish(make_body(4, MIB), number=number, properties=properties))
            assert await wire.receive() == Ack(kind=PacketType.PUBACK, packet_id=number)
        ((event, _),) = join_bodies(await gateway.stored()).whole
    assert (event.content_type, event.properties, event.expirytime is not None) == ("image/jpeg", "colour=red", True)


@pytest.mark.parametrize(
    ("limits", "private", "code"),
    [
        ({"max_bytes": MIB // 2}, None, Reason.PACKET_TOO_LARGE),
        ({"max_bytes": 0}, None, Reason.PACKET_TOO_LARGE),
        ({}, "camera-*", Reason.IMPLEMENTATION_SPECIFIC),
    ],
)
async def test_body_that_can_never_be_stored_ends_the_connection_with_the_reason(mqtt_gateway, limits, private, code):
    async with mqtt_gateway(private=private, **limits) as gateway, dial(gateway) as (wire, _):
        with contextlib.suppress(ConnectionError):
            await wire.send(publish(make_body(5, MIB)))
        answer = await wire.receive()
        assert isinstance(answer, Disconnect)
        assert answer.code == code
        assert join_bodies(await gateway.stored()).open == set()


async def test_message_without_a_valid_topic_is_a_dead_letter_and_its_rest_is_skipped(mqtt_gateway):
    async with mqtt_gateway() as gateway, dial(gateway) as (wire, _):
        await wire.send(Publish(topic="nowhere", payload=make_body(6, MIB), qos=1, packet_id=7), publish(b"21.5", number=8))
        answers = [await wire.receive(), await wire.receive()]
        assert [each.packet_id for each in answers] == [7, 8]
        assert answers[0].code >= Reason.UNSPECIFIED
        assert gateway.uploads.counters.whole == 0


async def test_body_waits_for_a_place_among_those_of_its_device(mqtt_gateway):
    async with mqtt_gateway(max_device_uploads=1) as gateway, dial(gateway) as (wire, _):
        first = gateway.uploads.begin(gateway.event(), lambda: None, MIB)
        await wire.send(publish(make_body(7, MIB)))
        await gateway.stored()
        assert gateway.uploads.counters.uploads == 1
        first.give_up()
        assert await wire.receive() == Ack(kind=PacketType.PUBACK, packet_id=7)


@pytest.mark.parametrize("step", [1, 2, 700, 4096, 100_000])
def test_framing_gives_a_large_publish_in_pieces_however_it_comes(step):
    body = make_body(8, 5000)
    sent = encode(publish(body), 5) + encode(Ping(PacketType.PINGREQ), 5)
    framer = Framer(1024, first=None)
    framer.max_publish_bytes = 10_000
    found, packets, rest = b"", [], 0
    for first in range(0, len(sent), step):
        framer.feed(sent[first : first + step])
        while True:
            piece = framer.next_piece()
            if piece is not None:
                found += piece
                if piece:
                    continue
                break
            packet = framer.next_packet()
            if packet is None:
                break
            packets.append(packet)
            rest = rest or framer.rest
    assert [header for header, _ in packets] == [0x32, 0xC0]
    assert (packets[0][1] + found).endswith(body)
    assert len(packets[0][1]) + len(found) == rest + len(packets[0][1])
    assert not framer.unfinished
