"""A device that sends more than its share is read more slowly; the others do not notice."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from fogline.process.rates import DeviceRates
from fogline_edge.adapters.mqtt.protocol.packets import Ack, Publish
from fogline_edge.adapters.mqtt.protocol.primitives import PacketType
from fogline_edge.adapters.mqtt.server.listener import MqttListener
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.settings import EdgeSettings, MqttSettings
from fogline_lab.clock import pass_time
from fogline_lab.memory import resident_bytes
from fogline_lab.port import MemoryPort
from fogline_lab.waiting import eventually

SHARE = 50
ROUNDS = 20


def puback(number):
    return Ack(kind=PacketType.PUBACK, packet_id=number)


def publishes(numbers, topic="t", qos=1):
    return [Publish(topic=topic, payload=b"%d" % each, qos=qos, packet_id=each * qos) for each in numbers]


async def listen(port, rate_s, burst):
    listener = MqttListener(port, MqttSettings(port=0), rates=DeviceRates(rate_s, burst))
    await listener.start()
    return listener


@pytest.mark.fault("D3")
async def test_only_the_device_that_floods_waits(dial):
    port = MemoryPort()
    listener = await listen(port, 0.001, 10)
    async with dial(listener, "flood") as (flood, _), dial(listener, "other") as (other, _):
        await flood.send(*publishes(range(1, 101)))
        assert [await flood.receive() for _ in range(11)] == [puback(each) for each in range(1, 12)]
        for number in range(1, 6):
            await other.publish("t", b"other", number)
            assert await other.receive() == puback(number)
        assert len(port.arrivals) == 11 + 5
        assert listener.counters.slowed == 1
    await listener.close()


async def test_slowed_messages_arrive_in_order_and_complete(dial):
    port = MemoryPort()
    listener = await listen(port, 5000.0, 10)
    async with dial(listener, "flood") as (flood, _):
        await flood.send(*publishes(range(1, 301)))
        assert [await flood.receive() for _ in range(300)] == [puback(each) for each in range(1, 301)]
        await flood.alive()
    assert [arrival.data for arrival in port.arrivals] == [b"%d" % each for each in range(1, 301)]
    assert listener.counters.slowed > 5
    await listener.close()


async def test_several_connections_of_one_device_share_its_share(dial):
    port = MemoryPort()
    listener = await listen(port, 0.001, 10)
    async with dial(listener, "a") as (a, _), dial(listener, "b") as (b, _):
        await a.send(*publishes(range(1, 11), "telemetry/acme/lamp-1"))
        assert [await a.receive() for _ in range(10)] == [puback(each) for each in range(1, 11)]
        await b.send(*publishes(range(1, 11), "telemetry/acme/lamp-1"))
        assert await b.receive() == puback(1)
        assert len(port.arrivals) == 11
        assert listener.counters.slowed == 1
    await listener.close()


async def test_bad_messages_of_one_client_slow_no_other_down(dial):
    port = MemoryPort()
    listener = await listen(port, 0.001, 3)
    async with dial(listener, "bad") as (bad, _), dial(listener, "other") as (other, _):
        await bad.send(*publishes(range(1, 11), "telemetry/foreign/lamp-1"))
        await port.until_stored(4)
        await other.publish("telemetry/foreign/lamp-1", number=1)
        assert (await other.receive()).packet_id == 1
        assert listener.counters.slowed == 1
    await listener.close()


async def test_a_connection_that_ends_while_it_is_not_read_ends_in_order(dial):
    port = MemoryPort()
    listener = await listen(port, 100.0, 1)
    async with dial(listener, "flood") as (flood, _):
        await flood.send(*publishes(range(1, 50), qos=0))
        await port.until_stored(2)
    await listener.close()
    assert listener.counters.connected == 0


@pytest.mark.fault("D3")
async def test_a_flood_of_a_hundred_times_its_share_does_not_slow_the_others_down(dial, folder):
    """The others are acknowledged while the flood is not read; of the flood its share is taken, and no memory."""
    outbox = Outbox.open(EdgeSettings(tenant="acme", gateway="gw-1", data=str(folder)))
    listener = await listen(outbox.port, rate_s := 0.001, SHARE)  # no other time passes than what the test lets pass
    async with AsyncExitStack() as stack:
        flood, *others = [(await stack.enter_async_context(dial(listener, f"d{n}")))[0] for n in range(6)]

        async def taken():
            (stream,) = await outbox.streams.pending()
            return stream.counts.stored - acknowledged

        acknowledged = await publish_in_turn(others)
        before = resident_bytes()
        flooding = asyncio.create_task(publish_for_ever(flood))
        await eventually(lambda: listener.counters.slowed == 1, "the flood is slowed")
        acknowledged += await publish_in_turn(others)
        first = await taken()
        pass_time(10 / rate_s)
        await eventually(lambda: listener.counters.slowed == 2, "the flood is read again, and slowed again")
        async with asyncio.timeout(60):
            while (more := await taken() - first) < 10:  # noqa: ASYNC110 - they are counted when they are committed
                await asyncio.sleep(0.01)
        grown = resident_bytes() - before
        flooding.cancel()
        await asyncio.wait({flooding})
    await listener.close()
    await outbox.close()
    print(f"{acknowledged} messages of others are acknowledged beside a flood; of the flood {first} are taken, then {more}")
    assert (first, more) == (SHARE + 1, 10)
    assert grown < 8 * 2**20


async def publish_for_ever(flood):
    """As fast as the socket takes it."""
    many = b"".join(each.encode(flood.version) for each in publishes(range(1, 101)))
    while True:
        flood.writer.write(many)
        await flood.writer.drain()


async def publish_in_turn(others):
    """Each publishes again when it has the PUBACK of its last message. Returns the number of messages."""

    async def publish(wire):
        for number in range(1, ROUNDS + 1):
            await wire.publish("t", b"%d" % number, number)
            assert await wire.receive() == puback(number)

    await asyncio.gather(*map(publish, others))
    return ROUNDS * len(others)
