"""G4: a PUBLISH with DUP set is a retransmission only if the PUBACK of its packet id's last message may be lost."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from fogline.events.codec import decode_event
from fogline.events.event import POSSIBLE_DUPLICATE, Receipt
from fogline.events.identity import AckDelivery
from fogline_edge.adapters.mqtt.protocol.packets import Ack, Disconnect, Publish, Subscribe
from fogline_edge.adapters.mqtt.protocol.primitives import V3, V5, PacketType, Reason
from fogline_edge.adapters.mqtt.session import client_protocol, puback_delivery
from fogline_edge.adapters.mqtt.session.ack_order import PendingAck
from fogline_edge.adapters.mqtt.session.puback_delivery import DELIVERED_AFTER_S, MAX_OF_CLIENT, RECONNECT_S, PubackDelivery
from fogline_edge.outbox.file.schema import open_database
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.outbox.rows.stored_body import unpack_body
from fogline_edge.settings import EdgeSettings, OutboxSettings
from fogline_lab.device.mqtt_talk import MqttTalk
from fogline_lab.port import MemoryPort

PUBACK = Ack(kind=PacketType.PUBACK, packet_id=1)
VERSIONS = pytest.mark.parametrize("version", [V3, V5])


def publish(number=1, topic="t", **more):
    return Publish(topic=topic, payload=b"same", qos=1, packet_id=number, **more)


def connected(context=None, now=0.0):
    talk = MqttTalk(context=context, now=now)
    talk.connect()
    return talk


def acknowledged(talk, *packets):
    """Each packet is stored, and its PUBACK is written."""
    for packet in packets:
        (store,) = talk.say(packet)
        talk.session.ack_order.committed(store.pending)
    talk.acknowledged()
    talk.session.ack_order.written(talk.now)


def heard(talk, now, *, drained=True, **more):
    talk.now = now
    talk.session.bytes_received(now, drained=lambda: drained, **more)


def lost(talk, now, *, drained=True):
    """End the connection, and return the client's next one."""
    talk.session.end(now, drained=drained)
    return connected(talk.context, now)


def delivery(talk, **more):
    """Return the evidence that goes with a PUBLISH that has DUP set."""
    (store,) = talk.say(publish(dup=True, **more))
    return store.arrival.retransmission.ack_delivery


def test_a_publish_that_was_never_acknowledged_is_resent_at_any_time():
    talk = connected()
    talk.say(publish())
    assert delivery(lost(talk, 1e6)) is AckDelivery.UNPROVEN


def test_a_puback_that_never_left_the_send_queue_was_lost_and_its_message_is_resent_at_any_time():
    talk = connected()
    acknowledged(talk, publish())
    heard(talk, DELIVERED_AFTER_S + 1, drained=False)
    talk = lost(talk, 100, drained=False)
    talk.now = 1e6
    assert delivery(talk) is AckDelivery.UNPROVEN


@pytest.mark.parametrize(
    ("now", "expected"), [(RECONNECT_S, AckDelivery.UNPROVEN), (RECONNECT_S + 9, AckDelivery.DOUBTFUL)], ids=["soon", "late"]
)
def test_a_connection_that_ends_with_its_puback_leaves_a_resend_for_a_while_and_then_a_doubt(now, expected):
    talk = connected()
    acknowledged(talk, publish())
    talk = lost(talk, DELIVERED_AFTER_S - 1)
    talk.now = now
    assert delivery(talk) is expected


def test_a_connection_that_outlives_its_puback_in_silence_leaves_a_doubt():
    talk = connected()
    acknowledged(talk, publish())
    assert delivery(lost(talk, DELIVERED_AFTER_S)) is AckDelivery.DOUBTFUL


def test_later_packet_of_the_client_proves_that_it_has_the_puback():
    talk = connected()
    acknowledged(talk, publish())
    heard(talk, DELIVERED_AFTER_S - 0.1)
    assert delivery(lost(talk, DELIVERED_AFTER_S - 0.1)) is AckDelivery.UNPROVEN
    talk = connected()
    acknowledged(talk, publish())
    heard(talk, DELIVERED_AFTER_S)
    assert delivery(lost(talk, 6)) is AckDelivery.PROVEN


def test_a_resend_is_acknowledged_anew_and_proven_by_itself():
    talk = connected()
    acknowledged(talk, publish())
    talk = lost(talk, 1)
    acknowledged(talk, publish(dup=True))
    heard(talk, 20)
    assert delivery(talk) is AckDelivery.PROVEN


def test_the_proof_is_of_the_message_and_not_of_a_later_one_with_its_packet_id():
    talk = connected()
    acknowledged(talk, publish())
    talk.say(publish())  # the id is used again, and this one is not acknowledged
    heard(talk, 20)
    assert delivery(lost(talk, 20)) is AckDelivery.UNPROVEN


@pytest.mark.parametrize(
    "use",
    [
        publish(topic="t//d2"),
        Publish(topic="t", payload=b"same", qos=2, packet_id=1),
        Subscribe(packet_id=1, filters=(("a", 0),)),
    ],
    ids=["another device", "QoS 2", "SUBSCRIBE"],
)
def test_a_packet_id_that_was_used_again_for_anything_ends_its_last_message(use):
    talk = connected()
    acknowledged(talk, publish())
    talk.say(use)
    assert delivery(lost(talk, 1)) is AckDelivery.PROVEN


def test_another_client_has_packet_ids_of_its_own():
    talk = connected()
    acknowledged(talk, publish())
    talk.session.end(1, drained=True)
    other = MqttTalk(context=talk.context)
    other.connect("d2")
    assert delivery(other) is AckDelivery.PROVEN


def test_connection_that_takes_over_a_session_shares_its_memory():
    old = connected()
    acknowledged(old, publish())
    new = connected(old.context, 1)
    old.session.end(1, taken_over=True, resumed=False, drained=True)
    assert delivery(new) is AckDelivery.UNPROVEN


def test_memory_is_bounded_for_a_client_and_for_all(monkeypatch):
    everyone = PubackDelivery()
    for number in range(1, MAX_OF_CLIENT + 100):
        everyone.open(("", "one")).use(PendingAck(number), "d")
    assert everyone.count == MAX_OF_CLIENT
    monkeypatch.setattr(puback_delivery, "MAX_UNPROVEN", 100)
    everyone = PubackDelivery()
    for number in range(1000):
        client = "", f"d{number}"
        everyone.open(client).use(PendingAck(1), "d")
        everyone.close(client)
    assert everyone.count <= 100
    assert len(everyone._clients) == everyone.count
    assert ("", "d999") in everyone._clients, "the latest are kept"
    for number in range(1, 1000):
        everyone.open(("", "live")).use(PendingAck(number), "d")
    assert everyone.count == sum(len(each.last) for each in everyone._clients.values()) <= 100


def test_a_client_of_which_nothing_is_left_is_forgotten():
    talk = connected()
    acknowledged(talk, publish())
    heard(talk, 10)
    talk.session.end(10, drained=True)
    assert talk.context.puback_delivery._clients == {}


@VERSIONS
async def test_a_device_that_says_the_same_with_packet_id_1_at_each_wake_up_loses_nothing(listening, dial, version):
    port = MemoryPort()
    async with listening(port) as listener:
        async with dial(listener, "d1", version=version) as (wire, _):
            await wire.send(publish())
            assert await wire.receive() == PUBACK
            await wire.send(Disconnect(code=Reason.SUCCESS))
            assert await wire.receive() is None
        async with dial(listener, "d1", version=version):
            pass  # its PUBLISH is lost with the connection
        async with dial(listener, "d1", version=version) as (wire, _):
            await wire.send(publish(dup=True))
            assert await wire.receive() == PUBACK
            await wire.send(publish(dup=True))
            assert await wire.receive() == PUBACK
    assert port.receipts == [Receipt.STORED, Receipt.STORED, Receipt.DUPLICATE]


@pytest.mark.fault("D1")
@VERSIONS
async def test_a_resend_after_a_lost_puback_is_stored_once(listening, dial, version):
    port = MemoryPort()
    async with listening(port) as listener:
        async with dial(listener, "d1", version=version) as (wire, _):
            await wire.send(publish())
            await port.until_stored(1)
        async with dial(listener, "d1", version=version) as (wire, _):
            await wire.send(publish(dup=True))
            assert await wire.receive() == PUBACK
    assert port.receipts == [Receipt.STORED, Receipt.DUPLICATE]


async def test_a_ping_after_the_puback_proves_its_delivery(listening, dial, monkeypatch):
    monkeypatch.setattr(client_protocol.ClientProtocol.bytes_received, "__kwdefaults__", {"after_s": 0.0})
    port = MemoryPort()
    async with listening(port) as listener:
        async with dial(listener, "d1") as (wire, _):
            await wire.send(publish())
            assert await wire.receive() == PUBACK
            await wire.alive()
        async with dial(listener, "d1") as (wire, _):
            await wire.send(publish(dup=True))
            assert await wire.receive() == PUBACK
    assert port.receipts == [Receipt.STORED, Receipt.STORED]


@pytest.fixture
def gateway(folder, listening):
    """Starts a gateway with a real outbox; each one goes on where the former ended."""

    @asynccontextmanager
    async def gateway(**settings_of_mqtt):
        settings = EdgeSettings(tenant="acme", gateway="gw-1", data=str(folder), outbox=OutboxSettings(group_commit_ms=0))
        outbox = Outbox.open(settings)
        try:
            async with listening(outbox.port, **settings_of_mqtt) as listener:
                yield listener
        finally:
            await outbox.close()

    return gateway


@pytest.fixture
def events(folder):
    def events():
        reader = open_database(folder / "outbox.db", 1_000_000_000)
        try:
            bodies = reader.execute("SELECT body FROM event ORDER BY place").fetchall()
            return [each for each in map(decode_event, (unpack_body(body) for (body,) in bodies)) if each.data == b"same"]
        finally:
            reader.close()

    return events


async def test_in_doubt_both_are_stored_and_the_second_names_the_first(gateway, dial, events, monkeypatch):
    monkeypatch.setattr(puback_delivery, "RECONNECT_S", -1.0)
    async with gateway() as listener:
        async with dial(listener, "d1") as (wire, _):
            await wire.send(publish())
            assert await wire.receive() == PUBACK
        async with dial(listener, "d1") as (wire, _):
            await until_drained(listener)
            await wire.send(publish(dup=True))
            assert await wire.receive() == PUBACK
    first, second = events()
    assert first.properties is None
    assert second.properties == f"{POSSIBLE_DUPLICATE}={first.id}"
    assert second.id != first.id


async def until_drained(listener):
    """Wait for the end of the former connection."""
    async with asyncio.timeout(60):
        while listener.counters.lost < 1:  # noqa: ASYNC110 (a counter has no event)
            await asyncio.sleep(0.001)


async def test_after_a_proven_delivery_a_crash_of_the_gateway_in_between_leaves_a_resend(gateway, dial, events):
    async with gateway() as listener, dial(listener, "d1") as (wire, _):
        await wire.send(publish())
        assert await wire.receive() == PUBACK
        await wire.send(Disconnect(code=Reason.SUCCESS))
        assert await wire.receive() is None
    async with gateway() as listener, dial(listener, "d1") as (wire, _):
        await wire.send(publish(dup=True))
        assert await wire.receive() == PUBACK
    assert len(events()) == 1
    async with gateway() as listener:
        for dup in (False, True):
            async with dial(listener, "d1") as (wire, _):
                await wire.send(publish(dup=dup))
                assert await wire.receive() == PUBACK
                await wire.send(Disconnect(code=Reason.SUCCESS))
                assert await wire.receive() is None
    assert len(events()) == 3
