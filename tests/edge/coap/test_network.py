"""A network that loses, repeats and reorders, and a gateway that is restarted."""

import asyncio

import aiocoap
import pytest
from aiocoap.numbers.constants import TransportTuning

from edge.coap.client import block1, request
from fogline.events.codec import decode_event
from fogline_edge.adapters.coap.wire import CoapMessage, Code, MessageType
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.settings import EdgeSettings
from fogline_lab.commands import MemoryCommands, make_command
from fogline_lab.port import MemoryPort
from fogline_lab.udp_line import DatagramFaults, udp_line

STORM = DatagramFaults(lose=0.15, duplicate=0.2, reorder=0.2)


class Quick(TransportTuning):
    """Retransmits soon and often, so that nothing is given up under loss."""

    ACK_TIMEOUT = 0.05
    MAX_RETRANSMIT = 10
    reliability = True


async def client_sends(address, count, size):
    """`count` bodies one after the other, each answered 2.04."""
    context = await aiocoap.Context.create_client_context(transports=["simple6"])
    try:
        for number in range(count):
            host, port = address
            body = b"%d " % number + b"x" * size
            uri = f"coap://{host}:{port}/telemetry/acme/d1"
            message = aiocoap.Message(code=aiocoap.PUT, uri=uri, payload=body, transport_tuning=Quick())
            async with asyncio.timeout(60):
                response = await context.request(message).response
            assert response.code == aiocoap.CHANGED
    finally:
        await context.shutdown()


async def test_a_storm_is_the_same_with_the_same_seed():
    async def fates(seed):
        async with udp_line(("127.0.0.1", 9), STORM, seed) as proxy:
            return [proxy.up.copies() for _ in range(1000)]

    assert await fates(1) == await fates(1)
    assert await fates(1) != await fates(2)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(("count", "size"), [(40, 10), (5, 5000)], ids=["small", "in blocks"])
@pytest.mark.fault("D2")
async def test_in_a_storm_everything_is_stored_once_and_in_order(listening, seed, count, size):
    port = MemoryPort()
    async with listening(port) as listener, udp_line(listener.address, STORM, seed) as proxy:
        await client_sends(proxy.address, count, size)
        assert proxy.up.lost
        assert proxy.down.lost
    assert [each.data.split()[0] for each in port.arrivals] == [b"%d" % number for number in range(count)]


async def test_in_a_storm_separate_responses_arrive(listening):
    port = MemoryPort()
    async with (
        listening(port, ack_delay_s=0.001, ack_timeout_s=0.05) as listener,
        udp_line(listener.address, DatagramFaults(lose=0.1, duplicate=0.2, reorder=0.2), 4) as proxy,
    ):
        port.hold()
        sending = asyncio.create_task(client_sends(proxy.address, 10, 10))
        for number in range(10):
            await port.until(lambda number=number: port.waiting + len(port.arrivals) > number, "it is put")
            while len(port.arrivals) <= number:
                port.release(1)
        await sending
    assert len(port.arrivals) == 10


async def test_in_a_storm_a_device_that_asks_gets_its_command_once(listening, dial):
    port, commands = MemoryPort(), MemoryCommands()
    async with (
        listening(port, commands, ack_timeout_s=0.05) as listener,
        udp_line(listener.address, DatagramFaults(duplicate=0.5, reorder=0.5), 5) as proxy,
    ):
        with dial(proxy.address) as wire:
            wire.send(request("t//lamp-1", query=["hono-ttd=60"]))
            await commands.until(lambda: "lamp-1" in commands.devices, "the device is reachable")
            commands.send(make_command())
            response = await wire.receive()
            while response.code != Code.CHANGED:
                response = await wire.receive()
            wire.send(CoapMessage(MessageType.ACK, Code.EMPTY, response.mid))
            await commands.until(lambda: commands.told == [("taken", "CMD-1")], "it is taken")
        assert len(port.arrivals) == 1


async def stored(outbox):
    return [
        decode_event(row.body).data
        for stream in await outbox.streams.pending()
        for row in await outbox.streams.read(stream.stream, 0, 1000)
    ]


@pytest.mark.fault("D2")
async def test_request_answered_before_a_restart_is_answered_again_and_stored_once(folder, listening, dial):
    settings = EdgeSettings(tenant="acme", gateway="gw-1", data=str(folder))
    messages = [request(payload=b"%d" % mid, mid=mid) for mid in range(20)]
    messages.append(request(payload=b"non", mid=20, kind=MessageType.NON))

    async def answered(wire):
        replies = [await wire.ask(each) for each in messages]
        assert {each.code for each in replies} == {Code.CHANGED}
        assert [each.mid for each in replies[:20]] == list(range(20))

    outbox = Outbox.open(settings)
    async with listening(outbox.port) as listener:
        address = listener.address
        with dial(address) as wire:
            await answered(wire)
            before = wire
            await listener.close()
            await outbox.close()
            outbox = Outbox.open(settings)
            async with listening(outbox.port, port=address[1]):
                await answered(before)
                assert (await before.ask(request(payload=b"new", mid=0))).code == Code.CHANGED
    events = await stored(outbox)
    assert events == [*(b"%d" % mid for mid in range(20)), b"non", b"new"]
    await outbox.close()


@pytest.mark.fault("D2")
async def test_a_body_in_blocks_whose_answer_was_lost_in_a_restart_is_stored_once(folder, listening, dial):
    settings = EdgeSettings(tenant="acme", gateway="gw-1", data=str(folder))
    first = request(payload=b"a" * 16, mid=1, options=[block1(0, more=True)])
    last = request(payload=b"b", mid=2, options=[block1(1, more=False)])
    outbox = Outbox.open(settings)
    async with listening(outbox.port) as listener:
        with dial(listener) as wire:
            assert (await wire.ask(first)).code == Code.CONTINUE
            assert (await wire.ask(last)).code == Code.CHANGED
            await listener.close()
            await outbox.close()
            outbox = Outbox.open(settings)
            async with listening(outbox.port, port=listener.address[1]):
                again = await wire.ask(last)
                assert (again.code, again.options) == (Code.CHANGED, (block1(1, more=False),))
                other = request(payload=b"c", mid=3, options=[block1(1, more=False)])
                assert (await wire.ask(other)).code == Code.REQUEST_ENTITY_INCOMPLETE
    assert await stored(outbox) == [b"a" * 16 + b"b"]
    await outbox.close()


async def test_a_restart_behind_the_proxy_is_not_seen_by_the_client(listening):
    port = MemoryPort()
    async with listening(port) as first, udp_line(first.address, DatagramFaults()) as proxy:
        await client_sends(proxy.address, 3, 10)
        async with listening(port) as second:
            proxy.retarget(second.address)
            await client_sends(proxy.address, 3, 10)
    assert len(port.arrivals) == 6
