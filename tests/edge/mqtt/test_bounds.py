"""Limits of the listener: silence, connections, messages in flight, buffers, and a full port."""

import asyncio
from contextlib import suppress
from itertools import cycle, islice

import pytest

from fogline_edge.adapters.mqtt.protocol.packets import Ack, Disconnect, Ping, Publish, Subscribe, Unsubscribe, Will
from fogline_edge.adapters.mqtt.protocol.primitives import V3, V5, PacketType, Reason
from fogline_edge.adapters.mqtt.protocol.properties import Properties
from fogline_edge.adapters.mqtt.server import dispatch
from fogline_edge.adapters.mqtt.session import client_protocol
from fogline_edge.adapters.mqtt.session.client_protocol import PACKET_S
from fogline_edge.adapters.mqtt.session.effects import SetReachable
from fogline_lab.clock import pass_time
from fogline_lab.commands import MemoryCommands
from fogline_lab.memory import resident_bytes
from fogline_lab.mqtt_packets import puback
from fogline_lab.port import MemoryPort
from fogline_lab.waiting import eventually

LIMIT_S = 60.0
MIB = 2**20
LASTING = Properties(session_expiry_s=7200)


def publishes(numbers, topic="t"):
    return [Publish(topic=topic, payload=b"%d" % each, qos=1, packet_id=each) for each in numbers]


@pytest.mark.parametrize(("version", "last"), [(V3, None), (V5, Disconnect(code=Reason.KEEP_ALIVE_TIMEOUT))])
async def test_a_client_silent_beyond_its_keep_alive_is_ended(listening, dial, version, last):
    port = MemoryPort()
    async with listening(port) as listener, dial(listener, "d1", version=version, keep_alive_s=60) as (wire, _):
        pass_time(90)
        assert await wire.receive() == last
        assert listener.counters.timed_out == 1


async def test_a_client_that_is_not_read_is_not_to_blame_for_its_silence(listening, dial):
    port = MemoryPort(capacity=1)
    port.hold()
    async with listening(port) as listener, dial(listener, "d1", keep_alive_s=60) as (wire, _):
        await wire.send(*publishes([1, 2]))
        await port.until(lambda: port.waiting == 1, "the port is full")
        async with dial(listener, "later", keep_alive_s=60) as (later, _):
            pass_time(90)
            assert await later.receive() == Disconnect(code=Reason.KEEP_ALIVE_TIMEOUT)
        port.release()
        assert [await wire.receive() for _ in range(2)] == [puback(1), puback(2)]


async def dribble(listener, wire, packet, limit_s):
    """Send one byte of a packet each second, and not the last; returns what comes from the other side."""
    for byte in islice(cycle(packet[:-1]), limit_s + 5):
        with suppress(ConnectionError):
            await wire.send(bytes([byte]))
        pass_time(1)
        await asyncio.sleep(0)
        if listener.counters.timed_out:
            return await wire.receive()
    raise AssertionError("the connection was not ended")


UNFINISHED = b"\x32\xff\xff\x03" + bytes(40)
"""The first bytes of a PUBLISH of 65,535 bytes."""


@pytest.mark.fault("N9")
@pytest.mark.parametrize(("version", "last"), [(V3, None), (V5, Disconnect(code=Reason.KEEP_ALIVE_TIMEOUT))])
async def test_bytes_of_an_unfinished_packet_are_no_sign_of_life(listening, dial, version, last):
    """G12: the keep alive ends a client that never finishes a packet."""
    async with listening(MemoryPort()) as listener, dial(listener, "d1", version=version, keep_alive_s=60) as (wire, _):
        assert await dribble(listener, wire, UNFINISHED, 90) == last
        assert listener.counters.timed_out == 1


@pytest.mark.fault("N9")
@pytest.mark.parametrize("begun", [False, True], ids=["at once", "after whole packets"])
async def test_an_unfinished_packet_has_a_time_limit_without_a_keep_alive_too(listening, dial, begun):
    """G12: a 3.1.1 client without a keep alive."""
    async with listening(MemoryPort()) as listener, dial(listener, "d1", version=V3) as (wire, _):
        if begun:
            await wire.publish("t")
            assert await wire.receive() == puback(1)
        assert await dribble(listener, wire, UNFINISHED, int(PACKET_S)) is None
        assert listener.counters.timed_out == 1


async def test_a_packet_that_comes_in_pieces_in_time_is_taken(listening, dial):
    async with listening(MemoryPort()) as listener, dial(listener, "d1", version=V3) as (wire, _):
        for number in (1, 2):
            packet = publishes([number])[0].encode(V3)
            for byte in packet:
                await wire.send(bytes([byte]))
                pass_time(0.8 * PACKET_S / len(packet))
                await asyncio.sleep(0)
            assert await wire.receive() == puback(number)
        pass_time(2 * PACKET_S)
        await wire.alive()
        assert listener.counters.timed_out == 0


@pytest.mark.fault("N9")
async def test_silent_and_dribbling_sockets_are_closed_and_a_good_client_is_served(listening, dial):
    port = MemoryPort()
    async with listening(port) as listener:
        silent = [await asyncio.open_connection(*listener.addresses["mqtt"]) for _ in range(100)]
        for _, writer in silent[:50]:
            writer.write(b"\x10\x20\x00")
        async with dial(listener, "good") as (wire, _):
            await wire.publish("t")
            assert await wire.receive() == puback(1)
            await eventually(lambda: listener.counters.connected == 101, "all are accepted")
            pass_time(10)
            async with asyncio.timeout(LIMIT_S):
                assert [await reader.read() for reader, _ in silent] == [b""] * 100
            await wire.alive()
        assert listener.counters.timed_out == 100
        for _, writer in silent:
            writer.close()


async def test_silent_sockets_make_room_for_a_client(listening, dial):
    port = MemoryPort()
    async with listening(port, max_connections=3) as listener:
        silent = [await asyncio.open_connection(*listener.addresses["mqtt"]) for _ in range(3)]
        await eventually(lambda: listener.counters.connected == 3, "all are accepted")
        async with dial(listener, "good") as (wire, _):
            await wire.alive()
            assert await gone(silent[0][0])
            assert listener.counters.over_limit == 1
        for _, writer in silent:
            writer.close()


async def gone(reader):
    async with asyncio.timeout(LIMIT_S):
        try:
            return await reader.read() == b""
        except ConnectionError:
            return True


async def test_beyond_the_most_connections_a_socket_is_closed_at_once(listening, dial):
    port = MemoryPort()
    async with listening(port, max_connections=2) as listener, dial(listener, "a") as (a, _), dial(listener, "b") as (b, _):
        reader, writer = await asyncio.open_connection(*listener.addresses["mqtt"])
        assert await gone(reader)
        writer.close()
        assert listener.counters.over_limit == 1
        await a.alive()
        await b.alive()


@pytest.mark.parametrize("version", [V3, V5])
@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.fault("D3")
async def test_a_client_that_floods_is_only_slowed(listening, dial, qos, version):
    port = MemoryPort()
    port.hold()
    more, most = ({"receive_maximum": 10}, 10) if version == V3 else ({}, client_protocol.READ_AHEAD)
    async with listening(port, **more) as listener, dial(listener, "flood", version=version) as (wire, connack):
        assert connack.properties.receive_maximum is None
        numbers = range(1, 1001)
        await wire.send(*[Publish(topic="t", payload=b"%d" % each, qos=qos, packet_id=each * qos) for each in numbers])
        await port.until(lambda: port.waiting == most, "the window is full")
        async with dial(listener, "other") as (other, _):
            await other.publish("t", b"other")
            await port.until(lambda: port.waiting == most + 1, "another client is served")
            assert port.waiting == most + 1
            port.release()
            assert await other.receive() == puback(1)
        if qos:
            assert [await wire.receive() for _ in numbers] == [puback(each) for each in numbers]
        await port.until_stored(1001)
        assert [each.data for each in port.arrivals if each.data != b"other"] == [b"%d" % each for each in numbers]


@pytest.mark.parametrize("qos", [1, 2])
async def test_a_client_that_exceeds_its_receive_maximum_is_ended(listening, dial, qos):
    """G13: 0x93, and what was within the maximum is stored."""
    port = MemoryPort()
    port.hold()
    async with listening(port, receive_maximum=10) as listener, dial(listener, "d1") as (wire, connack):
        assert connack.properties.receive_maximum == 10
        numbers = range(1, 12)
        await wire.send(*[Publish(topic="t", payload=b"%d" % each, qos=qos, packet_id=each) for each in numbers])
        assert await wire.receive() == Disconnect(code=Reason.RECEIVE_MAXIMUM_EXCEEDED)
        port.release()
        assert [each.data for each in port.arrivals] == [b"%d" % each for each in range(1, 11)]
        assert listener.counters.malformed == 1


async def test_a_client_that_keeps_to_its_receive_maximum_is_served(listening, dial):
    """G13: at QoS 2 a message is in flight until its PUBCOMP, and a PUBLISH that is sent again is no further one."""
    port = MemoryPort()
    async with listening(port, receive_maximum=2) as listener, dial(listener, "d1") as (wire, _):
        two = [Publish(topic="t", payload=b"x", qos=2, packet_id=each) for each in (1, 2)]
        for _ in range(3):
            await wire.send(*two)
            assert [await wire.receive() for _ in two] == [Ack(kind=PacketType.PUBREC, packet_id=each) for each in (1, 2)]
            await wire.send(two[0], *[Ack(kind=PacketType.PUBREL, packet_id=each) for each in (1, 2)])
            assert (await wire.receive()).kind is PacketType.PUBREC
            assert [await wire.receive() for _ in two] == [Ack(kind=PacketType.PUBCOMP, packet_id=each) for each in (1, 2)]
            await wire.send(*publishes([1, 2]))
            assert [await wire.receive() for _ in range(2)] == [puback(1), puback(2)]
        await wire.send(two[0])
        assert (await wire.receive()).kind is PacketType.PUBREC
        await wire.send(*publishes([3, 4]))
        answers = [await wire.receive(), await wire.receive()]
        assert Disconnect(code=Reason.RECEIVE_MAXIMUM_EXCEEDED) in answers


async def test_while_the_port_is_full_nothing_is_read_and_nothing_is_lost(listening, dial):
    port = MemoryPort(capacity=5)
    port.hold()
    async with listening(port) as listener, dial(listener, "d1") as (wire, _):
        numbers = range(1, 101)
        await wire.send(*publishes(numbers))
        await port.until(lambda: port.waiting == 5, "the port is full")
        for _ in range(3):
            port.release(2)
            await port.until(lambda: port.waiting == 5, "what was kept is put")
        port.release()
        assert [await wire.receive() for _ in numbers] == [puback(each) for each in numbers]
        assert [each.data for each in port.arrivals] == [b"%d" % each for each in numbers]
        await wire.alive()


async def test_while_too_much_waits_nothing_is_read_that_would_have_to_be_kept(listening, dial):
    """G6: what sessions have to keep or forget piled up while the outbox was full."""
    port = MemoryPort(capacity=5)
    async with listening(port, MemoryCommands()) as listener, dial(listener, "d1", properties=LASTING) as (wire, _):
        port.hold()
        for number in range(1, 6):
            await wire.publish("t", number=number)
        await port.until(lambda: port.waiting == 5, "the port is full")
        for number in range(1, 101, 2):
            await wire.send(Subscribe(packet_id=number, filters=(("command///req/#", 1),)))
            await wire.send(Unsubscribe(packet_id=number + 1, filters=("command///req/#",)))
        async with dial(listener, "other", properties=LASTING) as (_, connack):
            assert connack.code == Reason.SERVER_BUSY
        async with dial(listener, "other", version=V3, clean_start=False) as (_, connack):
            assert connack.code == 3
        async with dial(listener, "brief") as (_, connack):
            assert connack.code == Reason.SUCCESS
        assert port.waiting == 5
        port.release()
        assert len([await wire.receive() for _ in range(105)]) == 105
        await wire.alive()


@pytest.mark.parametrize(("version", "code"), [(V3, 3), (V5, Reason.QUOTA_EXCEEDED)])
async def test_wills_take_no_more_than_their_budget(listening, dial, version, code):
    """G6: 2,000 wills took 120 MB while the outbox was full."""
    port, will = MemoryPort(capacity=1), Will("event", bytes(60_000))
    async with listening(port) as listener, dial(listener, "d0") as (wire, _):
        listener.context.wills.most_bytes = 200_000
        port.hold()
        await wire.publish("t")
        await port.until(lambda: port.waiting == 1, "the port is full")
        for n in range(3):
            async with dial(listener, f"d{n + 1}", version=version, will=will):
                pass
        async with dial(listener, "d4", version=version, will=will) as (_, connack):
            assert connack.code == code
        async with dial(listener, "d4", version=version) as (_, connack):
            assert connack.code == 0
        port.release()
        assert [len(each.data) for each in await port.until_stored(4)] == [1, 60_000, 60_000, 60_000]
        assert listener.context.wills.held_bytes == 0


@pytest.mark.parametrize("goodbye", [[Disconnect(kind=PacketType.DISCONNECT)], []], ids=["DISCONNECT", "the session goes on"])
async def test_a_will_that_goes_unsaid_frees_its_memory(listening, dial, goodbye):
    port, will = MemoryPort(), Will("event", b"gone", properties=Properties(will_delay_s=3600))
    async with listening(port) as listener:
        wills = listener.context.wills
        async with dial(listener, "d1", will=will, properties=LASTING) as (wire, _):
            assert wills.held_bytes
            await wire.send(*goodbye)
        await eventually(lambda: listener.counters.left + listener.counters.lost == 1, "the end is noticed")
        async with dial(listener, "d1", properties=LASTING, clean_start=False):
            assert wills.held_bytes == 0
    assert port.arrivals == []


async def test_notes_of_devices_that_come_and_go_are_bounded_while_the_port_is_full(listening, dial, monkeypatch):
    monkeypatch.setattr(dispatch, "MAX_NOTES", 10)
    port = MemoryPort(capacity=1)
    async with listening(port, MemoryCommands()) as listener, dial(listener, "d0") as (wire, _):
        port.hold()
        await wire.publish("t")
        await port.until(lambda: port.waiting == 1, "the port is full")
        for n in range(20):
            listener.dispatch.run(SetReachable(f"d{n + 1}", reachable=True), object())
        assert listener.counters.notes_dropped == 10
        port.release()
        stored = await port.until_stored(11)
        assert [each.device for each in stored[1:]] == [f"d{n}" for n in range(11, 21)]
        assert len(port._for_room) == 0


async def test_a_client_that_never_reads_is_ended(listening, dial):
    async with listening(MemoryPort()) as listener, dial(listener, "d1") as (wire, _):
        wire.reader._transport.pause_reading()
        pings = Ping(PacketType.PINGREQ).encode(V5) * 50_000
        with pytest.raises((ConnectionError, TimeoutError)):  # noqa: PT012 (how many it takes depends on the kernel's buffers)
            for _ in range(200):
                await wire.send(pings)
        assert listener.counters.slow_reader == 1


@pytest.mark.fault("D10")
@pytest.mark.parametrize("version", [V3, V5])
async def test_a_body_of_20_mb_is_refused_by_its_length_and_never_held(listening, dial, version):
    port = MemoryPort()
    head = b"\x32" + b"\x80\xda\xc4\x09" + b"\x00\x01t\x00\x01"  # a PUBLISH at QoS 1 that says 20,000,000 bytes
    async with listening(port) as listener, dial(listener, "big", version=version) as (wire, _):
        before = resident_bytes()
        await wire.send(head)
        with suppress(ConnectionError):
            for _ in range(20_000_000 // MIB):
                await wire.send(bytes(MIB))
        assert await wire.receive() == (Disconnect(code=Reason.PACKET_TOO_LARGE) if version == V5 else None)
        grown = resident_bytes() - before
        print(f"{grown / MIB:.1f} MiB more of memory")
        assert grown < 8 * MIB
        async with dial(listener, "good") as (good, _):
            await good.alive()
    assert port.arrivals == []
