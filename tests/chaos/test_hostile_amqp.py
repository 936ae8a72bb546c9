"""Peers of the bridge that send what AMQP forbids, or nothing at all: each is ended, and nobody else notices."""

import asyncio
import contextlib
import gc
import os
import resource
from itertools import count

import pytest

from fogline.amqp.driver import HANDSHAKE_S, connect, open_connections
from fogline.amqp.engine import Engine
from fogline.amqp.outcome import ACCEPTED as ACCEPTED_OUTCOME
from fogline.amqp.scheduler import Share
from fogline.events.codec import MAX_MESSAGE_BYTES
from fogline.message import Message
from fogline_cloud.bridge.door.handshakes import MAX_HANDSHAKES
from fogline_cloud.bridge.peers.queue_budget import QueueBudget
from fogline_edge.outbox.outbox import Outbox
from fogline_lab import amqp_bytes as raw
from fogline_lab.amqp import End, within
from fogline_lab.amqp_bytes import RawAmqp
from fogline_lab.clock import pass_time
from fogline_lab.line.line import serving
from fogline_lab.memory import resident_bytes
from fogline_lab.waiting import until_not

SILENT = 1000
ACCEPTED = b"\x00\x53\x24"
PIECE = os.urandom(8000)


async def good_client(line, number):
    """A gateway of another name is served; returns how long its connection, hello and one event took together."""
    loop = asyncio.get_running_loop()
    outbox = Outbox.open(line.settings(f"good-{number}"))
    await line.put(outbox, number)
    began = loop.time()
    async with line.uplink(outbox):
        await within(line.drained(outbox), "a good client is not served")
    took = loop.time() - began
    await outbox.close()
    return took


def deep_message():
    properties = raw.described(raw.APPLICATION_PROPERTIES, raw.mapped(raw.text("k"), raw.deep(50_000)))
    return properties + raw.described(raw.DATA, b"\xa0\x01x")


def pieces(message):
    """A message as transfers, none larger than a frame may be."""
    cut = [message[at : at + 8000] for at in range(0, len(message), 8000)]
    return [raw.transfer(each, first=n == 0, more=n < len(cut) - 1) for n, each in enumerate(cut)]


ODD_KEY = raw.mapped(raw.listed(raw.text("k")), raw.text("v"))
NO_MAP = raw.listed(raw.text("k"), raw.text("v"))
BAD_CHAR = raw.mapped(raw.symbol("k"), b"\x73\xff\xff\xff\xff")
DEEP = raw.mapped(raw.symbol("k"), raw.deep(600))
FRAMING = b"amqp:connection:framing-error"
BEFORE_OPEN = {
    "garbage before the header": (os.urandom(64), b""),
    "another protocol": (b"GET / HTTP/1.1\r\n\r\n", b""),
    "garbage after the header": (raw.SASL + b"\xff" * 64, b""),
    "a deep map in the open": (raw.opening("evil", DEEP), b"amqp:decode-error"),
    "a map with a list for a key in the open": (raw.opening("evil", ODD_KEY), b"amqp:decode-error"),
    "a list for a map in the open": (raw.opening("evil", NO_MAP), b"amqp:decode-error"),
    "a char beyond Unicode in the open": (raw.opening("evil", BAD_CHAR), b"amqp:decode-error"),
    "a name that is no text": (raw.opening("evil").replace(b"evil", b"\xff\xfe\xfd\xfc"), b"amqp:decode-error"),
}
AFTER_OPEN = {
    "garbage after the open": (b"\xff" * 64, FRAMING),
    "a frame that is too big": (b"\x00\x10\x00\x00\x02\x00\x00\x00", FRAMING),
    "a frame that is too small": (b"\x00\x00\x00\x04\x02\x00\x00\x00", FRAMING),
    "a deep map in the attach": (raw.attaching("event/t", DEEP), b"amqp:decode-error"),
    "a map with a list for a key in the attach": (raw.attaching("event/t", ODD_KEY), b"amqp:decode-error"),
    "a list for a map in the attach": (raw.attaching("event/t", NO_MAP), b"amqp:decode-error"),
    "a char beyond Unicode in the attach": (raw.attaching("event/t", BAD_CHAR), b"amqp:decode-error"),
}
HOSTILE = {**BEFORE_OPEN, **AFTER_OPEN}


@pytest.mark.fault("N8")
async def test_peer_that_breaks_the_protocol_gets_an_error_and_is_closed(line):
    """N8: garbage before and after the header, frames too big or too small, deep maps: closed with the right condition."""
    async with serving(line) as bridge:
        for number, (what, (data, condition)) in enumerate(HOSTILE.items()):
            peer = await RawAmqp.dial(line.port)
            if what in AFTER_OPEN:
                await peer.send(raw.opening("evil"))
                await within(peer.until(b"\x00S" + bytes([raw.OPEN])), "no answer to open")
            await peer.send(data)
            came = await within(peer.end(), f"{what}: it is not ended")
            peer.close()
            assert condition in came, f"{what}: {came[-200:]!r}"
            await good_client(line, number)
            assert len(bridge.listener.peers) == 0, what
    assert sorted(line.landed()) == list(range(len(HOSTILE)))


@pytest.mark.fault("N8")
async def test_a_message_with_a_deep_map_is_rejected(line):
    """N8: a deep map in the application properties: rejected with `amqp:decode-error`, the connection lives."""
    async with serving(line):
        peer = await RawAmqp.linked(line.port, f"event/{line.tenant}")
        for piece in pieces(deep_message()):
            await peer.send(piece)
        await within(peer.until(b"amqp:decode-error"), "the message is not rejected")
        assert not peer.ended
        peer.close()
        await good_client(line, 1)


@pytest.mark.fault("N8")
async def test_b14_a_message_with_a_value_that_cannot_be_converted_is_rejected(line):
    """N8: a char beyond Unicode, and properties that are no map: each rejected, then a good message is accepted."""
    async with serving(line):
        peer = await RawAmqp.linked(line.port, f"event/{line.tenant}/meter-1")
        body = raw.described(raw.DATA, b"\xa0\x01x")
        bad = [raw.described(raw.APPLICATION_PROPERTIES, each) + body for each in (BAD_CHAR, NO_MAP)]
        for number, message in enumerate(bad):
            await peer.send(raw.transfer(message, first=True, more=False, number=number))
            await within(peer.until(b"amqp:decode-error"), "the message is not rejected")
            peer.came.clear()
        await peer.send(raw.transfer(body, first=True, more=False, number=len(bad)))
        await within(peer.until(ACCEPTED), "a good message on the same link is not accepted")
        peer.close()


@pytest.mark.fault("N8")
async def test_b13_3000_opens_with_wrong_types_leave_nothing_behind(line, thorough):
    """N8: opens and attaches with a list for a map: no connection stays counted, memory is flat, a gateway is served."""
    variants = [raw.opening("evil", NO_MAP), raw.opening("evil") + raw.attaching(f"event/{line.tenant}", NO_MAP)]
    async with serving(line) as bridge:

        async def come(count):
            for _ in range(count // 50):
                peers = [await RawAmqp.dial(line.port) for _ in range(50)]
                for number, peer in enumerate(peers):
                    await peer.send(variants[number % 2])
                await within(asyncio.gather(*(peer.end() for peer in peers)), "they are not ended")
                for peer in peers:
                    peer.close()

        await come(1000 if thorough else 300)
        gc.collect()
        before = resident_bytes()
        await come(3000 if thorough else 600)
        gc.collect()
        grown = resident_bytes() - before
        print(f"after {3000 if thorough else 600:,} more: {grown / 2**20:.1f} MiB more of memory")
        await good_client(line, 1)
        assert len(bridge.listener.peers) == 0
        assert open_connections() == []
        assert grown < 24 * 2**20


@pytest.mark.fault("N8", "D10")
async def test_a_message_without_end_closes_its_link_and_takes_no_memory(line):
    """N8: endless partial delivery: the link is closed at the limit, whatever comes after it is not kept."""
    async with serving(line):
        peer = await RawAmqp.linked(line.port, f"event/{line.tenant}")
        await peer.send(raw.transfer(PIECE, first=True, more=True))
        for _ in range(MAX_MESSAGE_BYTES // len(PIECE) + 1):
            await peer.send(raw.transfer(PIECE, first=False, more=True))
        await within(peer.until(b"amqp:link:message-size-exceeded"), "the link is not closed")
        before = resident_bytes()
        try:
            for _ in range(64 * 1024 * 1024 // len(PIECE)):
                await peer.send(raw.transfer(PIECE, first=False, more=True))
        except ConnectionError:
            print("the peer that goes on is cut off")
        grown = resident_bytes() - before
        print(f"after 64 MiB more: {grown / 2**20:.1f} MiB more of memory")
        assert grown < 16 * 2**20
        peer.close()
        await good_client(line, 1)


@pytest.mark.fault("N9")
async def test_1000_silent_sockets_are_closed_and_a_good_client_is_served(line, monkeypatch):
    """N9: of 1,000 silent sockets the oldest make room; a good client is served beside the rest, which end at the deadline."""
    assert HANDSHAKE_S <= 10.0
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 4 * SILENT:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4 * SILENT), hard))
    async with serving(line):
        monkeypatch.setattr("fogline.amqp.driver.HANDSHAKE_S", limit_s := 600.0)
        sockets = [await RawAmqp.dial(line.port) for _ in range(SILENT)]
        for each in sockets[::2]:
            await each.send(raw.SASL[:3])
        took = await good_client(line, 1)
        assert 0 < sum(not each.ended for each in sockets) <= MAX_HANDSHAKES
        pass_time(limit_s)
        await within(asyncio.gather(*(each.end() for each in sockets)), "they are not closed")
        for each in sockets:
            each.close()
        print(f"a good client was served in {took:.2f} s beside {SILENT} silent sockets")
        await good_client(line, 2)


@pytest.mark.fault("N8", "D10")
async def test_b9_messages_that_wait_for_kafka_stay_within_the_budget_and_all_of_them_land(line, monkeypatch):
    """N8: a client that sends 40 MB at once, as much as its credit allows: never more than the budget waits, none is lost."""
    most = 1_048_576
    held = []
    async with serving(line) as bridge:
        budget = bridge.listener.entrance.budget = QueueBudget(most, 4 * most)
        take = budget.take
        monkeypatch.setattr(budget, "take", lambda *what: (take(*what), held.append(budget.held_bytes)))
        client = End()
        connection = await connect("127.0.0.1", line.port, Engine("loud", properties={"tenant": line.tenant}), client)
        await within(client.is_open.wait(), "the connection did not open")
        sender = connection.open_sender(connection.open_session(), "l", f"telemetry/{line.tenant}/meter-1", Share(), {})
        sent = [sender.send(Message(body=n.to_bytes(2, "big") + bytes(100_000))) for n in range(400)]
        outcomes = await within(asyncio.gather(*sent), "they are not all settled", 60)
        await good_client(line, 1)
        connection.abort()
    assert set(outcomes) == {ACCEPTED_OUTCOME}
    assert sorted({int.from_bytes(each.value[:2], "big") for each in line.records() if len(each.value) > 100_000}) == [
        *range(400)
    ]
    assert budget.held_bytes == 0
    print(f"at most {max(held) / 2**20:.2f} MiB of 40 waited, of {most / 2**20:.0f} allowed")
    assert max(held) < most + 2 * 256 * 1024


@pytest.mark.fault("N8")
async def test_an_honest_gateway_is_served_beside_a_hostile_client(line):
    """N8: wrong types in open, attach and transfer, and floods of links, sessions and messages, while a gateway delivers."""
    body = raw.described(raw.DATA, b"\xa0\x01x")
    bad = raw.described(raw.APPLICATION_PROPERTIES, BAD_CHAR) + body

    took = []

    async def hostile(number):
        for turn in count():
            if turn >= 8 and len(took) >= 3:
                return
            peer = await RawAmqp.dial(line.port)
            address = f"event/{line.tenant}/meter-{number}"
            floods = [
                raw.opening("evil", NO_MAP),
                raw.opening(f"evil-{number}") + raw.attaching(address, BAD_CHAR),
                raw.opening(f"evil-{number}") + b"".join(raw.attaching(address) for _ in range(100)),
                raw.opening(f"evil-{number}")
                + raw.attaching(address)
                + b"".join(raw.transfer(bad, first=True, more=False, number=n) for n in range(300)),
            ]
            with contextlib.suppress(ConnectionError, TimeoutError):
                await peer.send(floods[turn % len(floods)])
                async with asyncio.timeout(0.3):
                    await peer.end()
            peer.close()

    async with serving(line) as bridge:
        crowd = asyncio.gather(*(hostile(number) for number in range(4)))
        while not crowd.done():
            took.append(await good_client(line, len(took)))
        await crowd
        print(f"beside hostile clients a gateway was served {len(took)} times, in {max(took):.2f} s at most")

        async def some_are_left():
            return bool(len(bridge.listener.peers))

        await until_not(some_are_left, "hostile connections stay counted")
    assert sorted(line.landed()) == list(range(len(took)))
