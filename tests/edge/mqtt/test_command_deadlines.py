"""The deadline of a command decides before each byte that lets a device begin: PUBLISH and PUBREL, and those in the kernel."""

import asyncio
import socket

import pytest

from fogline.commands.command import Deadline
from fogline.events.codec import Beacon
from fogline_edge.adapters.mqtt.protocol.packets import Ack, Connack, Connect, Disconnect, Publish, Subscribe
from fogline_edge.adapters.mqtt.protocol.primitives import V3, V5, PacketType, Reason
from fogline_edge.adapters.mqtt.protocol.properties import NONE, Properties
from fogline_edge.adapters.mqtt.session.effects import (
    Abort,
    CloseReason,
    DeliveryResult,
    Keep,
    ReportDelivery,
)
from fogline_edge.adapters.mqtt.session.session_state import restored
from fogline_edge.machine.boot import beacon
from fogline_lab.commands import MemoryCommands, make_command
from fogline_lab.device.mqtt_talk import MqttTalk, make_context
from fogline_lab.mqtt_packets import encode
from fogline_lab.port import MemoryPort

VERSIONS = pytest.mark.parametrize("version", [V3, V5])
DEADLINE = Deadline("boot", 60_000)
LIMIT_S = 60.0
FILTER = "command///req/#"


class ClockedLine:
    """A gateway with a clock, and a device that begins at PUBREL and does not look at session present, as paho does."""

    def __init__(self, version):
        self.version = version
        self.now_ms = 0
        self.context = make_context(with_commands=True)
        object.__setattr__(self.context, "now", lambda: Beacon("boot", self.now_ms))
        self.held = {}
        self.begun_ms = []
        self.told = []
        self.cut = self.aborted = False
        self.connect()

    def connect(self, **more):
        properties = Properties(session_expiry_s=1000) if self.version == V5 else NONE
        self.cut = self.aborted = False
        self.talk = MqttTalk(self.version, context=self.context)
        self.work(self.talk.connect("lamp-1", clean_start=False, properties=properties, **more))

    def subscribe(self, qos=2):
        self.work(self.talk.say(Subscribe(packet_id=5, filters=((FILTER, qos),))))

    def work(self, effects, *, until=None):
        """Perform effects. The device answers each packet at once, and the line is cut before it gets one of kind `until`."""
        for effect in effects:
            if self.cut:
                return
            match effect:
                case Publish(qos=2) | Ack(kind=PacketType.PUBREL) if until is type(effect):
                    self.lose()
                case Publish(qos=2) | Ack(kind=PacketType.PUBREL):
                    self.work(self.talk.say(self.device_gets(effect)), until=until)
                case Keep(then=then) if then is not None:
                    self.work([self.talk.read(each) for each in then()], until=until)
                case Connack(session_present=present):
                    self.session_present = present
                case ReportDelivery(result=result):
                    self.told.append(result)
                case Abort(reason=reason):
                    assert reason is CloseReason.STALLED_COMMAND
                    self.aborted = True
                    self.lose()

    def device_gets(self, packet):
        """Return the device's response."""
        if isinstance(packet, Publish):
            self.held[packet.packet_id] = packet
            return Ack(kind=PacketType.PUBREC, packet_id=packet.packet_id)
        if self.held.pop(packet.packet_id, None) is not None:
            self.begun_ms.append(self.now_ms)
        return Ack(kind=PacketType.PUBCOMP, packet_id=packet.packet_id)

    def execute(self, *, until=None):
        self.work(self.talk.execute(make_command(deadline=DEADLINE)), until=until)

    def lose(self):
        self.cut = True
        self.told += [each.result for each in self.talk.end() if isinstance(each, ReportDelivery)]

    def restart(self):
        (keep,) = self.talk.session._state.save(lambda: ())
        self.context.sessions.__init__(lambda: b"8 bytes.")
        self.context.sessions.restore([restored(keep.key, keep.value)], 0.0)


@pytest.mark.fault("X8")
@VERSIONS
@pytest.mark.parametrize("until", [Publish, Ack], ids=["before it gets PUBLISH", "between PUBREC and PUBREL"])
@pytest.mark.parametrize("restart", [False, True], ids=["reconnect", "restart"])
def test_an_exchange_at_qos_2_that_was_cut_is_over_at_the_deadline_and_so_is_its_session(version, until, restart):
    line = ClockedLine(version)
    line.subscribe()
    line.execute(until=until)
    assert line.cut
    assert not line.begun_ms
    if restart:
        line.restart()
    line.now_ms = 60_000
    line.connect()
    assert not line.session_present
    assert line.begun_ms == []
    assert line.told == [DeliveryResult.LOST]
    line.subscribe()
    line.work(line.talk.execute(make_command(id="CMD-2", deadline=Deadline("boot", 90_000))))
    assert line.begun_ms == [60_000], "the next command is begun, whatever the device has kept"


@VERSIONS
@pytest.mark.parametrize("until", [Publish, Ack], ids=["before it gets PUBLISH", "between PUBREC and PUBREL"])
def test_an_exchange_at_qos_2_that_was_cut_is_completed_before_the_deadline(version, until):
    line = ClockedLine(version)
    line.subscribe()
    line.execute(until=until)
    line.now_ms = 59_999
    line.connect()
    assert line.session_present
    assert line.begun_ms == [59_999]
    assert line.told == [DeliveryResult.TAKEN]


@pytest.mark.fault("X8")
@VERSIONS
@pytest.mark.parametrize("at", ["PUBREC", "commit"])
def test_a_pubrec_or_its_commit_that_is_late_gets_no_pubrel(version, at):
    line = ClockedLine(version)
    line.subscribe()
    (keep,) = line.talk.execute(make_command(deadline=DEADLINE))
    keep.then()
    if at == "PUBREC":
        line.now_ms = 60_000
    (keep,) = line.talk.say(Ack(kind=PacketType.PUBREC, packet_id=1))
    line.now_ms = 60_000
    line.work([keep])
    assert line.aborted
    assert line.told == [DeliveryResult.LOST]
    line.connect()
    assert not line.session_present


def test_a_pubrec_that_comes_again_after_the_deadline_gets_no_second_pubrel():
    line = ClockedLine(V5)
    line.subscribe()
    (keep,) = line.talk.execute(make_command(deadline=DEADLINE))
    keep.then()
    (keep,) = line.talk.say(Ack(kind=PacketType.PUBREC, packet_id=1))
    assert keep.then()
    line.now_ms = 60_000
    (abort,) = line.talk.say(Ack(kind=PacketType.PUBREC, packet_id=1))
    assert isinstance(abort, Abort)


@VERSIONS
def test_a_pubrec_of_a_packet_id_that_is_not_in_use_ends_connection_and_session(version):
    """Whatever its reason code, a PUBREL would let the device begin with what it holds under that id."""
    line = ClockedLine(version)
    line.subscribe()
    (close,) = line.talk.say(Ack(kind=PacketType.PUBREC, packet_id=9))
    assert close[-1] is CloseReason.MALFORMED
    assert version == V3 or close[0] == Disconnect(code=Reason.PROTOCOL_ERROR)
    line.lose()
    line.connect()
    assert not line.session_present


@VERSIONS
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_command_that_waits_in_the_gateway_until_its_deadline_is_not_sent(version, qos):
    line = ClockedLine(version)
    line.subscribe(qos)
    line.talk.session.downstream.pause(paused=True)
    line.execute()
    line.now_ms = 60_000
    sent = line.talk.session.downstream.pause(paused=False)
    line.work([line.talk.read(each) for each in sent])
    assert (line.held, line.told) == ({}, [DeliveryResult.NOT_SENT])


def test_a_command_whose_session_is_stored_only_after_its_deadline_is_not_sent():
    line = ClockedLine(V5)
    line.subscribe()
    (keep,) = line.talk.execute(make_command(deadline=DEADLINE))
    line.now_ms = 60_000
    line.work([keep])
    assert (line.held, line.told) == ({}, [DeliveryResult.NOT_SENT])


def test_a_retransmission_that_waits_for_the_receive_maximum_until_its_deadline_is_not_sent():
    line = ClockedLine(V5)
    line.subscribe()
    for number, deadline in ((1, Deadline("boot", 90_000)), (2, DEADLINE)):
        (keep,) = line.talk.execute(make_command(id=f"CMD-{number}", deadline=deadline))
        keep.then()
    line.lose()
    talk = line.talk = MqttTalk(V5, context=line.context)
    properties = Properties(session_expiry_s=1000, receive_maximum=1)
    assert sum(isinstance(each, Publish) for each in talk.connect("lamp-1", clean_start=False, properties=properties)) == 1
    talk.settled(Ack(kind=PacketType.PUBREC, packet_id=1))
    line.now_ms = 60_000
    _, abort = talk.settled(Ack(kind=PacketType.PUBCOMP, packet_id=1))
    assert isinstance(abort, Abort)


@pytest.mark.parametrize(("qos", "resumed"), [(1, True), (2, False)])
def test_at_the_deadline_a_connection_without_the_acknowledgement_ends(qos, resumed):
    line = ClockedLine(V5)
    line.subscribe(qos)
    line.talk.through(line.talk.execute(make_command(deadline=DEADLINE)))
    line.now_ms = 60_000
    line.work(line.talk.session.downstream.abandon("CMD-1"))
    assert line.aborted
    assert line.told == [DeliveryResult.LOST]
    line.connect()
    assert line.session_present is resumed
    assert line.told == [DeliveryResult.LOST]


def slow_socket(address):
    """A client whose kernel takes few bytes while the client does not read."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(address)
    client.settimeout(LIMIT_S)
    return client


def until(client, wanted):
    found = b""
    while wanted not in found:
        data = client.recv(4096)
        assert data, f"{found!r} without {wanted!r}"
        found += data


def all_that_comes(client):
    found = b""
    try:
        while data := client.recv(65_536):
            found += data
    except ConnectionError:
        pass
    return found


def make(number, in_ms=60_000, **more):
    now = beacon()
    return make_command(id=f"CMD-{number}", deadline=Deadline(now.boot_id, now.boottime_ms + in_ms), **more)


async def stalled(listener, qos):
    """A device whose line takes no more bytes, behind the first part of a command without a deadline that matters."""
    client = await asyncio.to_thread(slow_socket, listener.addresses["mqtt"])
    client.sendall(encode(Connect(version=V5, client_id="lamp-1"), V5))
    client.sendall(encode(Subscribe(packet_id=1, filters=((FILTER, qos),)), V5))
    await asyncio.to_thread(until, client, b"\x90\x04\x00\x01\x00" + bytes([qos]))
    return client


async def closed(listener):
    async with asyncio.timeout(LIMIT_S):
        while listener.counters.connected:  # noqa: ASYNC110 - a counter gives no event
            await asyncio.sleep(0.005)


@pytest.mark.fault("X8")
@pytest.mark.parametrize("qos", [1, 2])
async def test_at_the_deadline_the_bytes_that_wait_on_a_stalled_line_are_discarded(listening, qos):
    port, commands = MemoryPort(), MemoryCommands()
    async with listening(port, commands) as listener:
        client = await stalled(listener, qos)
        await commands.until(lambda: commands.devices, "the device is reachable")
        commands.send(make(1, data=bytes(60_000)))
        late = make(2, data=b"late")
        commands.send(late)
        listener.dispatch.abandon(late)
        assert commands.told == [("lost", "CMD-1"), ("lost", "CMD-2")]
        await closed(listener)
        assert b"CMD-2" not in await asyncio.to_thread(all_that_comes, client)
        client.close()
        assert listener.counters.stalled_command == 1


@pytest.mark.fault("X8")
async def test_at_qos_0_the_kernel_discards_them_at_the_deadline(listening):
    """The gateway has nothing to wait for at QoS 0, and may have ended meanwhile."""
    port, commands = MemoryPort(), MemoryCommands()
    async with listening(port, commands) as listener:
        client = await stalled(listener, 0)
        await commands.until(lambda: commands.devices, "the device is reachable")
        commands.send(make(1, data=bytes(60_000)))
        commands.send(make(2, in_ms=1500, data=b"late"))
        await commands.until(lambda: not commands.devices, "the connection ends", LIMIT_S)
        await closed(listener)
        assert b"CMD-2" not in await asyncio.to_thread(all_that_comes, client)
        client.close()


async def test_the_time_limit_of_the_kernel_ends_with_the_last_deadline(listening):
    port, commands = MemoryPort(), MemoryCommands()
    async with listening(port, commands) as listener:
        client = await stalled(listener, 0)
        await commands.until(lambda: commands.devices, "the device is reachable")
        (connection,) = listener._sockets
        raw, limit = connection._transport.get_extra_info("socket"), connection.reader.runner._limit

        def limit_ms():
            return raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)

        assert limit_ms() == 0
        commands.send(make(1, in_ms=50_000))
        assert 40_000 < limit_ms() <= 50_000
        commands.send(make(2, in_ms=5_000))
        assert limit_ms() <= 5_000
        limit._first_s = asyncio.get_running_loop().time() - 1
        limit._passed()
        assert 40_000 < limit_ms() <= 50_000
        limit._last_s = limit._first_s = 0.0
        limit._passed()
        assert limit_ms() == 0
        client.close()
