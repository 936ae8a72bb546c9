"""Sessions and messages after a restart of the gateway: the listener over the real outbox, reopened on the same folder."""

from contextlib import asynccontextmanager

import pytest

from fogline.commands.command import Deadline
from fogline.events.codec import decode_event
from fogline_edge.adapters.mqtt.protocol.packets import Ack, Connack, Publish
from fogline_edge.adapters.mqtt.protocol.primitives import V3, V5, PacketType
from fogline_edge.adapters.mqtt.protocol.properties import Properties
from fogline_edge.machine.boot import beacon
from fogline_edge.outbox.file.schema import open_database
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.outbox.rows.stored_body import unpack_body
from fogline_edge.settings import EdgeSettings, OutboxSettings
from fogline_lab.commands import MemoryCommands, make_command

VERSIONS = pytest.mark.parametrize("version", [V3, V5])
FILTER = "command///req/#"


def answer(kind, number=7):
    return Ack(kind=kind, packet_id=number)


def publish(data=b"x", topic="t", **more):
    return Publish(topic=topic, payload=data, qos=2, packet_id=7, **more)


def lasting(version):
    return {
        "version": version,
        "clean_start": False,
        "properties": Properties(session_expiry_s=3600) if version == V5 else Properties(),
    }


@pytest.fixture
def gateway(folder, listening):
    """Starts a gateway; each one goes on where the former ended."""

    @asynccontextmanager
    async def gateway(commands=None):
        settings = EdgeSettings(tenant="acme", gateway="gw-1", data=str(folder), outbox=OutboxSettings(group_commit_ms=0))
        outbox = Outbox.open(settings)
        try:
            async with listening(outbox.port, commands) as listener:
                yield listener
        finally:
            await outbox.close()

    return gateway


@pytest.fixture
def stored(folder):
    """The data of all events except notifications of devices that connect and disconnect."""

    def stored():
        reader = open_database(folder / "outbox.db", 1_000_000_000)
        try:
            bodies = reader.execute("SELECT body FROM event ORDER BY place").fetchall()
            events = [decode_event(unpack_body(body)) for (body,) in bodies]
            return [each.data for each in events if each.type == "telemetry"]
        finally:
            reader.close()

    return stored


@VERSIONS
@pytest.mark.parametrize("topic", ["t", "t//d2"])
async def test_qos_2_message_is_stored_once_however_it_is_retransmitted(gateway, dial, stored, version, topic):
    async with gateway() as listener, dial(listener, "d1", **lasting(version)) as (wire, _):
        await wire.send(publish(topic=topic))
        assert await wire.receive() == answer(PacketType.PUBREC)
    for dup in (True, False):
        async with gateway() as listener, dial(listener, "d1", **lasting(version)) as (wire, connack):
            assert connack.session_present
            await wire.send(publish(topic=topic, dup=dup))
            assert await wire.receive() == answer(PacketType.PUBREC)
    assert stored() == [b"x"]
    async with gateway() as listener, dial(listener, "d1", **lasting(version)) as (wire, _):
        await wire.send(answer(PacketType.PUBREL))
        assert await wire.receive() == answer(PacketType.PUBCOMP)
        await wire.send(publish(topic=topic))
        assert await wire.receive() == answer(PacketType.PUBREC)
    assert stored() == [b"x", b"x"]


@VERSIONS
@pytest.mark.fault("D5")
async def test_two_equal_readings_of_two_clean_sessions_are_two_events(gateway, dial, stored, version):
    for _ in range(2):
        async with gateway() as listener, dial(listener, "d1", version=version) as (wire, _):
            await wire.send(publish())
            assert await wire.receive() == answer(PacketType.PUBREC)
    assert stored() == [b"x", b"x"]


async def test_a_new_session_of_the_same_client_is_not_taken_for_the_former(gateway, dial, stored):
    for _ in range(2):
        async with gateway() as listener:
            more = {**lasting(V5), "clean_start": True}
            async with dial(listener, "d1", **more) as (wire, connack):
                assert not connack.session_present
                await wire.send(publish())
                assert await wire.receive() == answer(PacketType.PUBREC)
    assert stored() == [b"x", b"x"]


@VERSIONS
async def test_subscriptions_are_there_again(gateway, dial, version):
    async with gateway(MemoryCommands()) as listener, dial(listener, "lamp-1", **lasting(version)) as (wire, _):
        await wire.subscribe(FILTER)
    commands = MemoryCommands()
    async with gateway(commands) as listener:
        assert listener.counters.sessions_restored == 1
        assert commands.devices == {}
        async with dial(listener, "lamp-1", **lasting(version)) as (wire, connack):
            assert connack.session_present
            commands.send(make_command())
            assert (await wire.receive()).topic == "command///req/CMD-1/switch"


@VERSIONS
async def test_a_command_at_qos_2_is_finished_after_a_restart_and_run_once(gateway, dial, version):
    now = beacon()
    command = make_command(deadline=Deadline(now.boot_id, now.boottime_ms + 60_000))
    first = MemoryCommands()
    async with gateway(first) as listener, dial(listener, "lamp-1", **lasting(version)) as (wire, _):
        await wire.subscribe(FILTER, qos=2)
        first.send(command)
        sent = await wire.receive()
    assert first.told == []
    second = MemoryCommands()
    async with gateway(second) as listener, dial(listener, "lamp-1", **lasting(version)) as (wire, _):
        resent = await wire.receive()
        assert (resent.packet_id, resent.payload, resent.dup) == (sent.packet_id, sent.payload, True)
        await wire.send(answer(PacketType.PUBREC, sent.packet_id))
        assert await wire.receive() == answer(PacketType.PUBREL, sent.packet_id)
    third = MemoryCommands()
    async with gateway(third) as listener, dial(listener, "lamp-1", **lasting(version)) as (wire, _):
        assert await wire.receive() == answer(PacketType.PUBREL, sent.packet_id)
        await wire.send(answer(PacketType.PUBCOMP, sent.packet_id))
        await third.until(lambda: third.told, "it is taken")
        assert third.told == [("taken", "CMD-1")]


async def test_a_session_that_ended_is_not_there_again(gateway, dial):
    async with gateway(MemoryCommands()) as listener:
        async with dial(listener, "lamp-1", **lasting(V3)) as (wire, _):
            await wire.subscribe(FILTER)
        async with dial(listener, "lamp-1", version=V3) as (_, connack):
            assert connack == Connack()
    async with gateway(MemoryCommands()) as listener:
        assert listener.counters.sessions_restored == 0
        async with dial(listener, "lamp-1", **lasting(V3)) as (_, connack):
            assert not connack.session_present


async def test_an_unreadable_session_record_is_deleted(gateway, folder):
    outbox = Outbox.open(EdgeSettings(tenant="acme", gateway="gw-1", data=str(folder)))
    outbox.port.keep("mqtt/session//d1", b"garbage", lambda: None)
    outbox.port.keep("other/d1", b"not ours", lambda: None)
    await outbox.close()
    async with gateway() as listener:
        assert (listener.counters.sessions_restored, listener.counters.sessions_unreadable) == (0, 1)
    outbox = Outbox.open(EdgeSettings(tenant="acme", gateway="gw-1", data=str(folder)))
    assert dict(outbox.port.kept("")) == {"other/d1": b"not ours"}
    await outbox.close()


@pytest.mark.fault("D1")
async def test_qos_1_is_still_recognised_by_dup(gateway, dial, stored):
    for dup in (False, True, True):
        async with gateway() as listener, dial(listener, "d1") as (wire, _):
            await wire.publish("t", number=5, dup=dup)
            assert await wire.receive() == answer(PacketType.PUBACK, 5)
    assert stored() == [b"x"]
