"""One client breaks the protocol: the messages of another are stored and acknowledged all the same."""

import asyncio

import pytest

from fogline_edge.adapters.mqtt.protocol.packets import Ack, Connect, Disconnect, Ping, Publish, Subscribe
from fogline_edge.adapters.mqtt.protocol.primitives import V5, PacketType, Reason
from fogline_edge.adapters.mqtt.protocol.properties import Properties
from fogline_lab.commands import MemoryCommands
from fogline_lab.mqtt_packets import encode
from fogline_lab.port import MemoryPort

LIMIT_S = 60.0
RECEIVE_MAXIMUM = 50


def publish(number=1, qos=1, payload=b"lie", topic="telemetry", **more):
    return Publish(topic=topic, payload=payload, qos=qos, packet_id=number, **more)


def answers(kind, numbers):
    return [Ack(kind=kind, packet_id=each) for each in numbers]


LIES = {
    "garbage": [bytes(range(256)) * 16],
    "a packet of a server": [Ping(PacketType.PINGRESP)],
    "a second CONNECT": [Connect(version=V5, client_id="honest")],
    "a packet that is too large": [b"\x32\xff\xff\xff\x7f"],
    "a packet that is never finished": [b"\x32\xff\x7f\x00\x01t"],
    "a string that is no UTF-8": [b"\x30\x04\x00\x02\xff\xfe"],
    "a property that is none": [b"\x30\x06\x00\x01t\x02\xee\x00"],
    "a property twice": [b"\x30\x0a\x00\x01t\x06\x23\x00\x01\x23\x00\x02x"],
    "a topic alias without a topic": [Publish(topic="", payload=b"", properties=Properties(topic_alias=1))],
    "a topic of another tenant": [publish(topic="telemetry/other/honest")],
    "a name that is none": [publish(topic="telemetry//" + "x" * 200)],
    "more than its receive maximum": [publish(each) for each in range(1, 3 * RECEIVE_MAXIMUM)],
    "PUBLISHes without a PUBREL": [publish(each, qos=2) for each in range(1, 3 * RECEIVE_MAXIMUM)],
    "PUBRELs for nothing": answers(PacketType.PUBREL, range(1, 5000)),
    "PUBACKs for nothing": answers(PacketType.PUBACK, range(1, 5000)),
    "PUBCOMPs for nothing": answers(PacketType.PUBCOMP, range(1, 5000)),
    "one packet id for everything": [publish(1, qos=each % 2 + 1, payload=b"%d" % each) for each in range(40)],
    "DUP on everything": [publish(1, dup=True, payload=b"%d" % (each % 2)) for each in range(40)],
    "the commands of another device": [Subscribe(packet_id=1, filters=(("command//honest/req/#", 1),))],
    "an answer in another device's name": [publish(topic="command//honest/res/CMD-1/200")],
    "a DISCONNECT that prolongs": [Disconnect(code=0, properties=Properties(session_expiry_s=99))],
    "packets after DISCONNECT": [Disconnect(code=Reason.SUCCESS), *[publish(each) for each in range(1, 100)]],
}


async def serves(wire, port, body):
    """The honest client's message is stored and acknowledged, on the connection that it has."""
    await wire.send(publish(7, payload=body))
    answer = await wire.receive()
    assert answer == Ack(kind=PacketType.PUBACK, packet_id=7)
    assert [each.data for each in port.arrivals if each.device == "honest" and each.type == "telemetry"][-1] == body


@pytest.mark.fault("N8")
@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
async def test_no_packet_of_one_client_stops_another(listening, dial, lie):
    port, commands = MemoryPort(), MemoryCommands()
    async with listening(port, commands, receive_maximum=RECEIVE_MAXIMUM) as listener, dial(listener, "honest") as (honest, _):
        await serves(honest, port, b"before")
        async with dial(listener, "liar") as (liar, _):
            await liar.send(*lie)
            await serves(honest, port, b"beside")
        await serves(honest, port, b"after")
        async with dial(listener, "liar") as (again, _):
            await again.alive()


@pytest.mark.fault("N8")
async def test_client_that_connects_and_breaks_off_repeatedly_stops_no_other_client(listening, dial):
    port = MemoryPort()
    async with listening(port, max_connections=20) as listener, dial(listener, "honest") as (honest, _):
        connect = Connect(version=V5, client_id="liar", clean_start=False, properties=Properties(session_expiry_s=60))
        for number in range(100):
            reader, writer = await asyncio.open_connection(*listener.addresses["mqtt"])
            writer.write(encode(connect, V5)[: number % 20] if number % 2 else encode(connect, V5) + b"\x32")
            writer.transport.abort()
            if number % 20 == 0:
                await serves(honest, port, b"%d" % number)
            del reader
        await serves(honest, port, b"after")
        await honest.alive()
