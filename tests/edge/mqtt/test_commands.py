"""Commands through the listener on a real socket: to the device, and its answers back."""

import asyncio

import pytest

from fogline.commands.command import Deadline
from fogline.commands.command import Reply as CommandAnswer
from fogline.dead_letter import decode_dead_letter
from fogline.errors import SlowDown
from fogline.events.event import EMPTY_NOTIFICATION, Lane, Receipt
from fogline_edge.adapters.mqtt.protocol.packets import Ack, Connack, Disconnect, Publish, Unsubscribe
from fogline_edge.adapters.mqtt.protocol.primitives import V3, V5, PacketType, Reason
from fogline_edge.adapters.mqtt.protocol.properties import Properties
from fogline_edge.adapters.mqtt.server import connection
from fogline_edge.machine.boot import beacon
from fogline_lab.clock import pass_time
from fogline_lab.commands import MemoryCommands, make_command
from fogline_lab.port import MemoryPort

LIMIT_S = 60.0
FILTER = "command///req/#"
VERSIONS = pytest.mark.parametrize("version", [V3, V5])


def make(**more):
    """A command whose deadline is a minute away on this machine."""
    now = beacon()
    return make_command(**{"deadline": Deadline(now.boot_id, now.boottime_ms + 60_000), **more})


def answer(kind, number=1, code=0):
    return Ack(kind=kind, packet_id=number, code=code)


async def told(commands, *what):
    await commands.until(lambda: len(commands.told) >= len(what), f"{what} is told")
    assert commands.told == [(each, "CMD-1") for each in what]


async def away(commands, device="lamp-1"):
    await commands.until(lambda: device not in commands.devices, f"{device} is away")


@VERSIONS
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_a_command_goes_there_and_its_answer_back(listening, dial, version, qos):
    port, commands = MemoryPort(), MemoryCommands()
    async with listening(port, commands) as listener, dial(listener, "lamp-1", version=version) as (wire, _):
        await wire.subscribe(FILTER, qos=qos)
        assert commands.devices == {"lamp-1": listener.dispatch}
        commands.send(make())
        sent = await wire.receive()
        assert (sent.topic, sent.payload, sent.qos) == ("command///req/CMD-1/switch", b'{"on":true}', qos)
        if qos == 1:
            await wire.send(answer(PacketType.PUBACK, sent.packet_id))
        if qos == 2:
            await wire.send(answer(PacketType.PUBREC, sent.packet_id))
            assert await wire.receive() == answer(PacketType.PUBREL, sent.packet_id)
            await wire.send(answer(PacketType.PUBCOMP, sent.packet_id))
        await told(commands, "taken")
        await wire.publish("command///res/CMD-1/204", b"done", number=3)
        assert await wire.receive() == answer(PacketType.PUBACK, 3)
        assert commands.answers == {"CMD-1": CommandAnswer(204, b"done")}
        assert (listener.counters.commands, listener.counters.commands_taken, listener.counters.answers) == (1, 1, 1)


async def test_connects_and_disconnects_of_a_device_reach_the_downlink(listening, dial):
    port, commands = MemoryPort(), MemoryCommands()
    async with listening(port, commands) as listener:
        async with dial(listener, "lamp-1") as (wire, _):
            await wire.subscribe(FILTER)
            await wire.subscribe(FILTER, "c///q/#")
            await wire.send(Unsubscribe(packet_id=1, filters=(FILTER, "c///q/#")))
            await wire.receive()
            assert commands.devices == {}
            await wire.subscribe(FILTER)
        await away(commands)
        notes = await port.until_stored(4)
        assert [each.ttd_s for each in notes] == [-1, 0, -1, 0]
        first = notes[0]
        assert (first.device, first.lane, first.type, first.channel) == ("lamp-1", Lane.ALARM, "notification", "command")
        assert (first.content_type, first.data, first.adapter) == (EMPTY_NOTIFICATION, b"", "mqtt")


async def test_while_the_port_is_full_only_the_newest_word_about_a_device_waits(listening, dial):
    port, commands = MemoryPort(capacity=1), MemoryCommands()
    async with listening(port, commands) as listener, dial(listener, "lamp-1") as (wire, _):
        port.hold()
        await wire.publish("t", number=9)
        await port.until(lambda: port.waiting == 1, "the port is full")
        for number in range(3):
            listener.dispatch._notify("lamp-1", number)
            listener.dispatch._notify("lamp-2", number)
        port.release()
        notes = (await port.until_stored(3))[1:]
        assert [(each.device, each.ttd_s) for each in notes] == [("lamp-1", 2), ("lamp-2", 2)]


async def test_the_newest_of_two_connections_carries_and_when_it_goes_the_other_does(listening, dial):
    commands = MemoryCommands()
    async with listening(MemoryPort(), commands) as listener, dial(listener, "lamp-1") as (first, _):
        await first.subscribe(FILTER)
        listener.dispatch._set_reachable("lamp-1", Silent(), reachable=True)
        commands.send(make())
        assert commands.told == []
        listener.dispatch._carriers["lamp-1"].popitem()
        commands.send(make())
        assert isinstance(await first.receive(), Publish)


class Silent:
    def execute(self, command):
        pass


async def test_without_its_puback_a_command_is_lost_and_not_sent_again(listening, dial):
    commands = MemoryCommands()
    lasting = {"clean_start": False, "properties": Properties(session_expiry_s=60)}
    async with listening(MemoryPort(), commands) as listener:
        async with dial(listener, "lamp-1", **lasting) as (wire, _):
            await wire.subscribe(FILTER)
            commands.send(make())
            assert isinstance(await wire.receive(), Publish)
        await told(commands, "lost")
        async with dial(listener, "lamp-1", **lasting) as (wire, connack):
            assert connack.session_present
            await wire.alive()


async def test_a_device_that_is_gone_gets_nothing(listening, dial):
    commands = MemoryCommands()
    async with listening(MemoryPort(), commands) as listener:
        async with dial(listener, "lamp-1") as (wire, _):
            await wire.subscribe(FILTER)
        await away(commands)
        listener.dispatch.execute(make())
        assert commands.told == [("not_sent", "CMD-1")]


@VERSIONS
async def test_at_qos_2_a_command_is_finished_on_the_next_connection(listening, dial, version):
    port, commands = MemoryPort(), MemoryCommands()
    lasting = {"clean_start": False, "properties": Properties(session_expiry_s=60) if version == V5 else Properties()}
    async with listening(port, commands) as listener:
        async with dial(listener, "lamp-1", version=version, **lasting) as (wire, _):
            await wire.subscribe(FILTER, qos=2)
            commands.send(make())
            sent = await wire.receive()
        await away(commands)
        async with dial(listener, "lamp-1", version=version, **lasting) as (wire, connack):
            assert connack.session_present
            resent = await wire.receive()
            assert (resent.topic, resent.packet_id, resent.dup) == (sent.topic, sent.packet_id, True)
            await wire.send(answer(PacketType.PUBREC, sent.packet_id))
            assert await wire.receive() == answer(PacketType.PUBREL, sent.packet_id)
        await away(commands)
        async with dial(listener, "lamp-1", version=version, **lasting) as (wire, _):
            assert await wire.receive() == answer(PacketType.PUBREL, sent.packet_id)
            await wire.send(answer(PacketType.PUBCOMP, sent.packet_id))
            await told(commands, "taken")
        assert listener.counters.commands_resent == 2


async def test_when_its_session_expires_a_command_is_lost(listening, dial):
    port, commands = MemoryPort(), MemoryCommands()
    lasting = {"clean_start": False, "properties": Properties(session_expiry_s=30)}
    async with listening(port, commands) as listener:
        async with dial(listener, "lamp-1", **lasting) as (wire, _):
            await wire.subscribe(FILTER, qos=2)
            commands.send(make())
            await wire.receive()
        await away(commands)
        pass_time(30)
        await told(commands, "lost")
        assert port.kept("mqtt/session/") == {}
        async with dial(listener, "lamp-1", **lasting) as (_, connack):
            assert connack == Connack(properties=connack.properties)


async def test_an_abandoned_command_is_not_sent(listening, dial):
    commands = MemoryCommands()
    more = {"clean_start": False, "properties": Properties(session_expiry_s=60, receive_maximum=1)}
    async with listening(MemoryPort(), commands) as listener:
        async with dial(listener, "lamp-1", **more) as (wire, _):
            await wire.subscribe(FILTER, qos=2)
            first, second = make(), make(id="CMD-2")
            commands.send(first)
            await wire.receive()
            commands.send(second)
            listener.dispatch.abandon(second)
            assert commands.told == [("not_sent", "CMD-2")]
            await wire.alive()
        await away(commands)
        listener.dispatch.abandon(first)
        async with dial(listener, "lamp-1", **more) as (wire, connack):
            assert not connack.session_present
            assert commands.told[-1] == ("lost", "CMD-1")
            await wire.alive()


async def test_a_command_larger_than_the_device_takes_is_refused(listening, dial):
    commands = MemoryCommands()
    more = {"properties": Properties(maximum_packet_bytes=300)}
    async with listening(MemoryPort(), commands) as listener, dial(listener, "lamp-1", **more) as (wire, _):
        await wire.subscribe(FILTER)
        commands.send(make(data=bytes(300)))
        assert commands.told == [("refused", "CMD-1")]
        await wire.alive()


async def test_a_large_command_may_be_read_slowly(listening, dial):
    commands = MemoryCommands()
    async with listening(MemoryPort(), commands) as listener, dial(listener, "lamp-1") as (wire, _):
        wire.framer.max_packet_bytes = 2**24
        await wire.subscribe(FILTER)
        wire.reader._transport.pause_reading()
        for number in range(20):
            commands.send(make(id=f"CMD-{number}", data=bytes(250_000)))
        wire.reader._transport.resume_reading()
        for number in range(20):
            sent = await wire.receive()
            assert (sent.packet_id, len(sent.payload)) == (number + 1, 250_000)
        await wire.alive()
        assert listener.counters.slow_reader == 0


async def test_a_client_that_never_reads_a_command_is_ended(listening, dial, monkeypatch):
    monkeypatch.setattr(connection, "DRAIN_S", 0.1)
    commands = MemoryCommands()
    async with listening(MemoryPort(), commands) as listener, dial(listener, "lamp-1") as (wire, _):
        await wire.subscribe(FILTER)
        wire.reader._transport.pause_reading()
        sent = 0
        while "not_sent" not in dict(commands.told):  # how many it takes depends on the kernel's buffers
            if commands.devices:
                sent += 1
                commands.send(make(id=f"CMD-{sent}", data=bytes(250_000)))
            await asyncio.sleep(0)
        assert {what for what, _ in commands.told} == {"lost", "not_sent"}
        assert listener.counters.slow_reader == 1


@pytest.mark.parametrize(
    "topic",
    ["command///res/CMD-1/200", "c///s/CMD-1/200", "command/acme/lamp-1/res/CMD-1/200", "c//lamp-1/s/CMD-1/200/?a=b"],
)
async def test_every_way_to_answer(listening, dial, topic):
    commands = MemoryCommands()
    commands.known["CMD-1"] = "lamp-1"
    async with listening(MemoryPort(), commands) as listener, dial(listener, "lamp-1") as (wire, _):
        await wire.publish(topic, b"{}", properties=Properties(content_type="application/json"))
        assert await wire.receive() == answer(PacketType.PUBACK)
        assert commands.answers == {"CMD-1": CommandAnswer(200, b"{}", "application/json")}


async def test_an_answer_at_qos_2_is_taken_once(listening, dial):
    commands = MemoryCommands()
    commands.known["CMD-1"] = "lamp-1"
    async with listening(MemoryPort(), commands) as listener, dial(listener, "lamp-1") as (wire, _):
        said = Publish(topic="command///res/CMD-1/200/?content-type=a%2Fb", payload=b"x", qos=2, packet_id=9)
        await wire.send(said, said)
        assert await wire.receive() == answer(PacketType.PUBREC, 9)
        await wire.send(answer(PacketType.PUBREL, 9))
        assert await wire.receive() == answer(PacketType.PUBCOMP, 9)
        assert commands.told == [("answer", "CMD-1")]
        assert commands.answers == {"CMD-1": CommandAnswer(200, b"x", "a/b")}


@pytest.mark.parametrize(
    ("topic", "refusal"),
    [
        ("command///res/CMD-1/600", ("bad-status", Reason.TOPIC_NAME_INVALID)),
        ("command///res/CMD-1/ok", ("bad-status", Reason.TOPIC_NAME_INVALID)),
        ("command///res/CMD-1/199", ("bad-status", Reason.TOPIC_NAME_INVALID)),
        ("command///res/CMD-1", ("bad-topic", Reason.TOPIC_NAME_INVALID)),
        ("command///res//200", ("bad-identifier", Reason.TOPIC_NAME_INVALID)),
        ("c/other/lamp-1/s/CMD-1/200", ("foreign-tenant", Reason.NOT_AUTHORIZED)),
        ("command///req/CMD-1/switch", ("bad-topic", Reason.TOPIC_NAME_INVALID)),
    ],
)
@pytest.mark.parametrize("qos", [1, 2])
async def test_an_answer_that_is_none_becomes_a_dead_letter(listening, dial, topic, refusal, qos):
    reason, code = refusal
    port, commands = MemoryPort(), MemoryCommands()
    async with listening(port, commands) as listener, dial(listener, "lamp-1") as (wire, _):
        await wire.send(Publish(topic=topic, payload=b"x", qos=qos, packet_id=1))
        assert await wire.receive() == answer(PacketType.PUBREC if qos == 2 else PacketType.PUBACK, code=code)
        assert decode_dead_letter(port.arrivals[0].data).reason == reason
        assert commands.told == []


async def test_without_commands_an_answer_becomes_a_dead_letter(listening, dial):
    port = MemoryPort()
    async with listening(port) as listener, dial(listener, "lamp-1") as (wire, _):
        await wire.publish("command///res/CMD-1/200")
        assert await wire.receive() == answer(PacketType.PUBACK, code=Reason.TOPIC_NAME_INVALID)
        assert decode_dead_letter(port.arrivals[0].data).reason == "bad-topic"


async def test_an_answer_is_acknowledged_in_its_place(listening, dial):
    port, commands = MemoryPort(), MemoryCommands()
    port.hold()
    async with listening(port, commands) as listener, dial(listener, "lamp-1") as (wire, _):
        await wire.publish("t", number=1)
        await wire.publish("command///res/CMD-1/200", number=2)
        await commands.until(lambda: len(commands.told) == 1, "the answer")
        await wire.alive()
        port.release()
        assert [await wire.receive() for _ in range(2)] == [answer(PacketType.PUBACK, 1), answer(PacketType.PUBACK, 2)]


class Full(MemoryCommands):
    """Takes an answer at the second try."""

    def __init__(self):
        super().__init__()
        self.tries = 0

    def answer(self, device, command_id, answer, done):  # noqa: ARG002 (the interface)
        self.tries += 1
        if self.tries == 1:
            raise SlowDown("full")
        asyncio.get_running_loop().call_soon(done, Receipt.STORED)


async def test_an_answer_waits_for_room(listening, dial):
    commands = Full()
    async with listening(MemoryPort(), commands) as listener, dial(listener, "lamp-1") as (wire, _):
        await wire.publish("command///res/CMD-1/200")
        assert await wire.receive() == answer(PacketType.PUBACK)
        assert commands.tries == 2


async def test_a_confirmation_of_nothing_is_nothing_and_a_wrong_one_ends_the_connection(listening, dial):
    commands = MemoryCommands()
    async with listening(MemoryPort(), commands) as listener, dial(listener, "lamp-1") as (wire, _):
        await wire.subscribe(FILTER)
        await wire.send(answer(PacketType.PUBACK, 7))
        commands.send(make())
        sent = await wire.receive()
        await wire.send(answer(PacketType.PUBCOMP, sent.packet_id))
        assert await wire.receive() == Disconnect(code=Reason.PROTOCOL_ERROR)
        await told(commands, "lost")


async def test_a_session_taken_over_is_reached_through_the_new_connection(listening, dial):
    commands = MemoryCommands()
    lasting = {"clean_start": False, "properties": Properties(session_expiry_s=60)}
    async with listening(MemoryPort(), commands) as listener, dial(listener, "lamp-1", **lasting) as (old, _):
        await old.subscribe(FILTER, qos=2)
        commands.send(make())
        await old.receive()
        async with dial(listener, "lamp-1", **lasting) as (new, connack):
            assert connack.session_present
            assert (await new.receive()).dup
            assert commands.devices == {"lamp-1": listener.dispatch}
            commands.send(make(id="CMD-2"))
            assert (await new.receive()).topic == "command///req/CMD-2/switch"
            assert commands.told == []


async def test_full_memory_keeps_its_entries(listening, dial):
    """Sessions of connected clients never give way; those of clients that are away do, the longest first."""
    commands = MemoryCommands()
    lasting = {"clean_start": False, "properties": Properties(session_expiry_s=60)}
    port = MemoryPort()
    async with listening(port, commands, max_connections=1) as listener:
        for name in ("a", "b", "c"):
            async with dial(listener, name, **lasting) as (wire, _):
                await wire.send(Disconnect(properties=Properties(session_expiry_s=50)))
                assert await wire.receive() is None
        assert sorted(port.kept("mqtt/session/")) == ["mqtt/session//b", "mqtt/session//c"]
        assert listener.counters.sessions_dropped == 1
