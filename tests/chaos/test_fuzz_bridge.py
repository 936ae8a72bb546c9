"""A bridge process on a real broker gets thousands of wrong frames and messages: what is left of them, and who is served."""

import asyncio
import os
import socket
import struct
from itertools import count, takewhile

import pytest

from fogline.address import shard_of
from fogline.amqp.driver import connect
from fogline.amqp.engine import Engine
from fogline.amqp.scheduler import Share
from fogline.errors import Unreachable
from fogline_lab.amqp import End, within
from fogline_lab.amqp_bytes import AMQP, SASL
from fogline_lab.line.process_line import ProcessLine
from fogline_lab.memory import resident_bytes
from fogline_lab.supervisor import start_child
from fuzz import live
from fuzz.amqp_frames import GREETING, SERVER
from fuzz.batches import BATCH
from fuzz.control import CLIENT_EVENT, HELLO, REQUEST
from fuzz.forms import Decoder
from fuzz.running import cases

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
CONNECTIONS = 2000
MESSAGES = 1500
HANDSHAKES = 3000
IN_FLIGHT = 8
REPLIES = Decoder("replies", BATCH.layers, [form for form in BATCH.forms if form.name == "reply"])


@pytest.fixture
def site(kafka, folder):
    return ProcessLine("acme", folder, kafka.bootstrap, shards=2)


class Liar:
    """A client of the bridge that sends messages as bytes, whatever stands in them."""

    def __init__(self, site, address, container, properties, link_properties) -> None:
        self._site = site
        self._address = address
        self._engine = container, properties
        self._link_properties = link_properties

    async def send(self, inputs) -> dict[str, int]:
        """Send each as one message; the connection and the link are made again when the bridge ends them."""
        outcomes: dict[str, int] = {}
        waiting = list(inputs)
        while waiting:
            end = End()
            container, properties = self._engine
            engine = Engine(container, hostname="test", properties={"tenant": "acme", **properties})
            connection = await connect("127.0.0.1", self._site.ports["b-1"], engine, end)
            await within(end.is_open.wait(), "the liar's connection does not open")
            session = connection.open_session()
            control = f"control/acme/{container}"
            if properties:
                connection.open_receiver(session, "control", control, credit=100)
            sender = connection.open_sender(session, "lane", self._address, Share(), self._link_properties)
            while waiting and not sender.closed and not end.is_closed.is_set():
                some, waiting = waiting[:IN_FLIGHT], waiting[IN_FLIGHT:]
                futures = [sender.send_encoded(data) for data in some]
                told = await within(asyncio.gather(*futures, return_exceptions=True), "messages are not settled", 60)
                for each in told:
                    assert not isinstance(each, Exception) or isinstance(each, Unreachable), each
                    word = "unknown" if isinstance(each, Exception) else each.state.value
                    outcomes[word] = outcomes.get(word, 0) + 1
            connection.close()
            connection.abort()
            await within(end.is_closed.wait(), "the liar's connection does not end")
        return outcomes


def liars(site):
    """Return the senders with their inputs: batches and hellos of a gateway, events of a client, commands of an operator."""
    gateway = {"product": "fogline-edge"}
    shard = shard_of("gw-1", site.shards)
    return [
        (BATCH, Liar(site, f"ingest/acme/{shard}", "gw-1", gateway, {"lane": "telemetry"})),
        (REPLIES, Liar(site, f"ingest/acme/{shard}", "gw-1", gateway, {"lane": "reply"})),
        (HELLO, Liar(site, "hello/acme", "gw-1", gateway, {})),
        (CLIENT_EVENT, Liar(site, "event/acme", "client", {}, {})),
        (REQUEST, Liar(site, "command/acme", "desk", {}, {})),
    ]


async def storm(site, connections: int, messages: int) -> str:
    """Wrong frames, then wrong messages on good links. Returns what became of them, in words."""
    port = site.ports["b-1"]
    done = await live.for_each(cases(SERVER, connections), lambda case: live.converse(port, live.frames_of(case)))
    told = [f"{done} connections"]
    for decoder, liar in liars(site):
        sent = [case.data for case in cases(decoder, messages) if len(case.data) < 900_000]
        told.append(f"{decoder.name} {await liar.send(sent)}")
    return ", ".join(told)


@pytest.mark.fault("S4", "N8")
async def test_fuzz_bridge_process(site):
    """S4: wrong fields in every frame and message: no traceback, no lock-out, memory within 5 MB, counts as before."""
    bridge = site.bridge("b-1")
    try:
        await start_child(bridge)
        await site.shared("b-1")
        await site.time_a_gateway()
        await storm(site, CONNECTIONS, MESSAGES)  # what a process does the first time takes memory of its own
        before = await live.census(bridge)
        memory = resident_bytes(bridge.pid)
        said = await storm(site, CONNECTIONS, MESSAGES)
        took = await site.time_a_gateway()
        after = await live.settled(bridge, before)
        grown = resident_bytes(bridge.pid) - memory
        print(f"{said}; memory {grown / 1e6:+.1f} MB, {before} before, {after} after, a good gateway in {took:.2f} s")
        found = live.unhandled(bridge.log.read_text("utf-8", "replace"))
        assert found == [], f"{len(found)} errors that nobody handled, the first: {found[0][:3000]}"
        assert grown < live.FLAT_BYTES
    finally:
        await site.close()


def half_open(port: int, data: bytes) -> None:
    """Connect, send the beginning of a handshake, and reset the connection."""
    with socket.create_connection(("127.0.0.1", port), 10) as peer:
        peer.sendall(data)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@pytest.mark.fault("S5")
async def test_fuzz_handshakes_of_a_bridge(site):
    """S5: thousands of handshakes that fail or are cut: none stays counted, and a good gateway is served beside them."""
    bridge = site.bridge("b-1")
    begun = (b"", SASL[:3], SASL, GREETING, GREETING + AMQP, os.urandom(64), GREETING + b"\x00\x00\x00\x08\x02\x00\x00\x00")
    try:
        await start_child(bridge)
        await site.shared("b-1")
        port = site.ports["b-1"]

        async def one(number: int) -> None:
            await asyncio.to_thread(half_open, port, begun[number % len(begun)])

        await live.for_each(range(4 * HANDSHAKES), one)  # until the heap has room for all that are open at once
        usual = await site.time_a_gateway()
        before = await live.census(bridge)
        memory = resident_bytes(bridge.pid)
        served = asyncio.Event()
        numbers = takewhile(lambda number: number < HANDSHAKES or not served.is_set(), count())
        storm = asyncio.create_task(live.for_each(numbers, one))
        took = await site.time_a_gateway()
        served.set()
        done = await storm
        after = await live.settled(bridge, before)
        grown = await live.growth(bridge, memory, lambda: live.for_each(range(HANDSHAKES), one))
        print(f"{done} handshakes cut; a good gateway in {took:.2f} s beside them, {usual:.2f} s before; {grown / 1e6:+.1f} MB")
        assert live.unhandled(bridge.log.read_text("utf-8", "replace")) == []
        assert after["connections"] == before["connections"]
        assert grown < live.FLAT_BYTES
    finally:
        await site.close()
