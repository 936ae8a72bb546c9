"""One budget of bytes for all that clients have not finished, or that waits: strangers and clients beyond it are sent away."""

import asyncio
from contextlib import AsyncExitStack, suppress

import pytest

from edge.mqtt.waiting import gone, publishes
from fogline.transport.byte_budget import LOGIN_BYTES, ByteBudget
from fogline_edge.adapters.mqtt.protocol.packets import Connect, Disconnect, Publish, Will
from fogline_edge.adapters.mqtt.protocol.primitives import V5, Reason
from fogline_lab.mqtt_packets import encode, puback
from fogline_lab.port import MemoryPort
from fogline_lab.waiting import eventually

MIB = 2**20


def beginning(packet, size_bytes):
    """All but the last byte of a packet of this size: `packet` gets so many bytes of payload."""
    whole = packet(bytes(size_bytes))
    return whole[:-1]


def connect_of(payload):
    return encode(Connect(version=V5, client_id="x", will=Will("event", payload)), V5)


def publish_of(payload):
    return Publish(topic="t", payload=payload, qos=1, packet_id=1).encode(V5)


@pytest.mark.fault("S7")
async def test_a_connect_of_more_than_16_kib_is_refused_by_its_length(listening, dial):
    async with listening(MemoryPort()) as listener:
        reader, writer = await asyncio.open_connection(*listener.addresses["mqtt"])
        writer.write(connect_of(bytes(LOGIN_BYTES))[:100])
        assert await gone(reader)
        writer.close()
        assert listener.counters.malformed == 1
        async with dial(listener, "good", will=Will("event", bytes(LOGIN_BYTES - 200))) as (wire, _):
            await wire.publish("t", bytes(200_000))
            assert await wire.receive() == puback(1)


@pytest.mark.fault("S7")
async def test_strangers_with_unfinished_packets_take_a_quarter_of_the_budget_and_clients_are_served(listening, dial):
    """300 clients hold back the last byte of a CONNECT with a will."""
    budget = ByteBudget(4 * MIB)
    async with listening(MemoryPort()) as listener, dial(listener, "former") as (former, _):
        listener.budget = budget
        writers = []
        for _ in range(300):
            _, writer = await asyncio.open_connection(*listener.addresses["mqtt"])
            writer.write(beginning(connect_of, LOGIN_BYTES - 200))
            writers.append(writer)
            assert budget.held_bytes <= MIB
        await eventually(lambda: listener.counters.over_limit >= 230, "most strangers are sent away")
        assert budget.held_bytes <= MIB
        await former.publish("t", bytes(200_000))
        assert await former.receive() == puback(1)
        async with dial(listener, "later") as (later, _):
            await later.publish("t", bytes(200_000))
            assert await later.receive() == puback(1)
        for writer in writers:
            writer.close()
        await eventually(lambda: budget.held_bytes == 0, "nothing stays of those that are gone")


@pytest.mark.fault("S7")
async def test_unfinished_packets_of_all_clients_have_one_budget_and_others_are_served(listening, dial):
    """60 clients hold back the last byte of a PUBLISH of 200 kB. Those that lose are told why."""
    budget = ByteBudget(4 * MIB)
    async with AsyncExitStack() as stack, listening(MemoryPort()) as listener, dial(listener, "good") as (good, _):
        listener.budget = budget
        last_words = []
        for number in range(60):
            wire, _ = await stack.enter_async_context(dial(listener, f"d{number}"))
            last_words.append(asyncio.ensure_future(wire.receive()))
            with suppress(ConnectionError):
                await wire.send(beginning(publish_of, 200_000))
            assert budget.held_bytes <= 3 * MIB
        await eventually(lambda: sum(each.done() for each in last_words) == 45, "those for whom there is no room are told so")
        assert {each.result() for each in last_words if each.done()} == {Disconnect(code=Reason.QUOTA_EXCEEDED)}
        for number in range(1, 6):
            await good.publish("t", bytes(250_000), number)
            assert await good.receive() == puback(number)
        for each in last_words:
            each.cancel()


@pytest.mark.fault("S7")
async def test_packets_that_wait_because_the_outbox_is_full_have_the_same_budget(listening, dial):
    """The bytes of whole packets that nobody takes count, too."""
    port, budget = MemoryPort(capacity=1), ByteBudget(4 * MIB)
    async with AsyncExitStack() as stack, listening(port) as listener, dial(listener, "first") as (first, _):
        listener.budget = budget
        port.hold()
        await first.publish("t")
        await port.until(lambda: port.waiting == 1, "the port is full")
        for number in range(40):
            wire, _ = await stack.enter_async_context(dial(listener, f"d{number}"))
            await wire.send(*publishes(range(1, 21), "t" * 2000))
        await eventually(lambda: budget.held_bytes, "they wait")
        assert budget.held_bytes <= 3 * MIB
        port.release()
        await eventually(lambda: budget.held_bytes == 0, "they are taken")
