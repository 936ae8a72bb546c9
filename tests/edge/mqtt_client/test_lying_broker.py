"""A broker that breaks MQTT: its link ends in a sentence, and the gateway's own listener serves on."""

import asyncio
import contextlib
from random import Random

import pytest

from fogline.amqp.backoff import Backoff
from fogline_edge.adapters.mqtt.protocol.packets import Connack, Connect
from fogline_edge.adapters.mqtt.protocol.primitives import V5
from fogline_edge.adapters.mqtt.server.listener import MqttListener
from fogline_edge.settings import MqttSettings
from fogline_lab.amqp import within
from fogline_lab.memory import resident_bytes
from fogline_lab.mqtt_packets import encode
from fogline_lab.port import MemoryPort
from fuzz.mqtt_forms import to_client
from fuzz.running import seed

CONNACK = Connack().encode(V5)
HUGE = b"\x30\xff\xff\xff\x7f"
"""A PUBLISH that declares 268,435,455 bytes (5: 1.5.5)."""


async def broker_that_says(data: bytes, more: bytes = b"", count: int = 0):
    """A server that answers CONNECT with `data`, then `count` times `more`."""

    async def serve(reader, writer):
        try:
            await reader.read(1000)
            writer.write(data)
            for _ in range(count):
                writer.write(more)
                await writer.drain()
            await reader.read()
        except ConnectionError:
            pass
        finally:
            writer.close()

    return await asyncio.start_server(serve, "127.0.0.1", 0)


async def greeted(port: int) -> bytes:
    """Return the answer of the gateway's own listener to a CONNECT."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(encode(Connect(version=V5, client_id="lamp-1"), V5))
    answer = await asyncio.wait_for(reader.read(2), 10)
    writer.close()
    return answer


@pytest.mark.fault("S4")
async def test_packet_over_the_limit_ends_the_connection_and_takes_no_memory(connecting, eventually):
    """S4: a broker declares a packet of 256 MB: the link ends at once, whatever comes; devices are served meanwhile."""
    server = await broker_that_says(CONNACK + HUGE, bytes(1_000_000), 128)
    listener = MqttListener(MemoryPort(), MqttSettings(port=0))
    await listener.start()
    before = resident_bytes()
    async with server, connecting(MemoryPort(), server.sockets[0].getsockname()[1], wait=False) as client:
        await eventually(lambda: client.counters.failures >= 3, "the link ends, again and again")
        assert (await greeted(listener.addresses["mqtt"][1]))[:1] == CONNACK[:1]
    await listener.close()
    assert resident_bytes() - before < 64 * 2**20


SAMPLE = 400


@pytest.mark.fault("S4")
async def test_wrong_packets_of_a_broker_end_their_link_and_nothing_else(connecting, eventually):
    """S4: a sample of wrong fields in every packet of a broker: nothing is unhandled, and the next connection is tried."""
    random = Random(seed())
    made = [make for form in to_client() for make in form.singles()]
    waiting, unhandled, last = iter(random.sample(made, SAMPLE)), [], asyncio.Event()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append((case, context)))
    case = None

    async def serve(reader, writer):
        nonlocal case
        if (make := next(waiting, None)) is None:
            last.set()
        else:
            case = make()
            with contextlib.suppress(ConnectionError):
                await reader.read(1000)
                writer.write((b"" if case.form == "CONNACK" else CONNACK) + case.data)
                await writer.drain()
        writer.close()

    listener = MqttListener(MemoryPort(), MqttSettings(port=0))
    await listener.start()
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server, connecting(MemoryPort(), server.sockets[0].getsockname()[1], wait=False) as client:
        client._backoff = Backoff(base_s=0.001, cap_s=0.001)
        await within(last.wait(), "the client does not come back for the next packet")
        assert (await greeted(listener.addresses["mqtt"][1]))[:1] == CONNACK[:1]
    await listener.close()
    assert unhandled == [], f"seed {seed()}: {unhandled[0]}"
