"""G11: PUBREC goes before PUBCOMP, even if the PUBREL arrives before its PUBREC was sent."""

import pytest

from fogline_edge.adapters.mqtt.protocol.packets import Ack, Publish
from fogline_edge.adapters.mqtt.protocol.primitives import V3, V5, PacketType
from fogline_lab.commands import MemoryCommands
from fogline_lab.port import MemoryPort


@pytest.mark.parametrize("version", [V3, V5])
@pytest.mark.parametrize("topic", ["t", "nowhere", "command///res/CMD-1/200"], ids=["stored", "dead", "answer"])
async def test_publish_and_pubrel_in_one_segment_are_answered_in_order(listening, dial, version, topic):
    port, commands = MemoryPort(), MemoryCommands()
    port.hold()
    publish = Publish(topic=topic, payload=b"x", qos=2, packet_id=7)
    async with listening(port, commands) as listener, dial(listener, "d1", version=version) as (wire, _):
        await wire.publish("t", number=6)
        await wire.send(publish, Ack(kind=PacketType.PUBREL, packet_id=7))
        await port.until(lambda: port.waiting >= 1, "the messages are put")
        port.release()
        assert await wire.receive() == Ack(kind=PacketType.PUBACK, packet_id=6)
        pubrec = await wire.receive()
        assert (pubrec.kind, pubrec.packet_id) == (PacketType.PUBREC, 7)
        pubcomp = await wire.receive()
        assert (pubcomp.kind, pubcomp.packet_id) == (PacketType.PUBCOMP, 7)


async def test_a_pubrel_that_is_early_does_not_complete_a_message_that_is_not_stored(listening, dial):
    """While the outbox holds the event back for want of room, it takes what frees room."""
    port = MemoryPort()
    put, held = port.put, []
    port.put = lambda arrival, done: held.append((arrival, done))
    async with listening(port) as listener, dial(listener, "d1") as (wire, _):
        await wire.send(Publish(topic="t", payload=b"x", qos=2, packet_id=7), Ack(kind=PacketType.PUBREL, packet_id=7))
        await wire.alive()
        assert len(held) == 1
        put(*held[0])
        assert await wire.receive() == Ack(kind=PacketType.PUBREC, packet_id=7)
        assert await wire.receive() == Ack(kind=PacketType.PUBCOMP, packet_id=7)
        await wire.alive()
