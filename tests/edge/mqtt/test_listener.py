"""The listener on a real socket, spoken to byte by byte."""

import asyncio
import socket

import pytest

from fogline.dead_letter import decode_dead_letter
from fogline.errors import Misconfigured
from fogline.events.event import Receipt
from fogline.process.files import tls_files
from fogline_edge.adapters.mqtt.protocol.packets import Connack, Connect, Disconnect, Publish, Will
from fogline_edge.adapters.mqtt.protocol.primitives import V3, V5, Reason
from fogline_edge.adapters.mqtt.protocol.properties import Properties
from fogline_edge.adapters.mqtt.server import listener as listener_module
from fogline_edge.adapters.mqtt.server.listener import MqttListener
from fogline_edge.broker_settings import TopicSettings
from fogline_edge.settings import MqttSettings
from fogline_lab.credentials.mosquitto_passwords import password_file
from fogline_lab.mqtt_packets import encode, puback
from fogline_lab.port import MemoryPort
from fogline_lab.waiting import eventually

LIMIT_S = 60.0


def publishes(numbers, topic="t"):
    return [Publish(topic=topic, payload=b"%d" % each, qos=1, packet_id=each) for each in numbers]


@pytest.mark.parametrize("version", [V3, V5])
async def test_a_publish_is_acknowledged_only_after_its_commit(listening, dial, version):
    port = MemoryPort()
    port.hold()
    async with listening(port) as listener, dial(listener, "d1", version=version) as (wire, _):
        await wire.publish("telemetry", b'{"a":1}', number=9)
        await wire.alive()
        assert (port.waiting, listener.counters.acknowledged) == (1, 0)
        port.release()
        assert await wire.receive() == puback(9)
        (arrival,) = port.arrivals
        assert (arrival.device, arrival.data, arrival.content_type) == ("d1", b'{"a":1}', "application/json")
        assert (listener.counters.received, listener.counters.acknowledged) == (1, 1)


async def test_pubacks_come_in_the_order_of_the_publishes(listening, dial):
    port = MemoryPort()
    numbers = [7, 3, 9, 1, 65535, 2]
    async with listening(port) as listener, dial(listener, "d1") as (wire, _):
        await wire.send(*publishes(numbers))
        assert [await wire.receive() for _ in numbers] == [puback(each) for each in numbers]
        assert [each.data for each in port.arrivals] == [b"%d" % each for each in numbers]


async def test_qos_0_is_stored(listening, dial):
    port = MemoryPort()
    async with listening(port) as listener, dial(listener, "d1") as (wire, _):
        await wire.send(Publish(topic="t", payload=b"a"), Publish(topic="t", payload=b"a"))
        assert [each.retransmission for each in await port.until_stored(2)] == [None, None]


@pytest.mark.fault("D5")
async def test_two_equal_readings_are_two_events(listening, dial):
    port = MemoryPort()
    async with listening(port) as listener, dial(listener, "d1") as (wire, _):
        for _ in range(2):
            await wire.publish("t", b"same", number=1)
            assert await wire.receive() == puback(1)
        assert len(port.arrivals) == 2


@pytest.mark.parametrize("version", [V3, V5])
@pytest.mark.fault("D1")
async def test_a_resend_after_a_lost_puback_is_stored_once(listening, dial, version):
    port = MemoryPort()
    more = {"clean_start": False, "properties": Properties(session_expiry_s=60)} if version == V5 else {"clean_start": False}
    async with listening(port) as listener:
        port.hold()
        async with dial(listener, "d1", version=version, **more) as (wire, connack):
            assert not connack.session_present
            await wire.publish("t", b"a", number=5)
            await port.until(lambda: port.waiting == 1, "the first copy is put")
        async with dial(listener, "d1", version=version, **more) as (wire, connack):
            assert connack.session_present
            await wire.publish("t", b"a", number=5, dup=True)
            await port.until(lambda: port.waiting == 2, "the resend is put")
            port.release()
            assert await wire.receive() == puback(5)
    assert port.receipts == [Receipt.STORED, Receipt.DUPLICATE]


@pytest.mark.fault("D1")
async def test_a_resend_is_recognised_across_a_restart_of_the_gateway(listening, dial):
    port = MemoryPort()
    async with listening(port) as listener, dial(listener, "d1") as (wire, _):
        await wire.publish("t", b"a", number=5)
        assert await wire.receive() == puback(5)
    port.restart()
    async with listening(port) as listener, dial(listener, "d1") as (wire, _):
        await wire.publish("t", b"a", number=5, dup=True)
        assert await wire.receive() == puback(5)
    assert port.receipts == [Receipt.STORED, Receipt.DUPLICATE]


@pytest.mark.parametrize(("version", "last"), [(V3, None), (V5, Disconnect(code=Reason.SESSION_TAKEN_OVER))])
async def test_a_second_connection_takes_the_session_over(listening, dial, version, last):
    port = MemoryPort()
    async with (
        listening(port) as listener,
        dial(listener, "d1", version=version) as (old, _),
        dial(listener, "d1", version=version) as (new, connack),
    ):
        assert connack.code == 0
        assert await old.receive() == last
        await new.publish("t")
        assert await new.receive() == puback(1)
        assert listener.counters.taken_over == 1


@pytest.mark.parametrize("version", [V3, V5])
async def test_the_will_is_published_when_the_connection_is_cut(listening, dial, version):
    port = MemoryPort()
    async with listening(port) as listener, dial(listener, "d1", version=version, will=Will("event", b"gone")) as (wire, _):
        wire.cut()
        (arrival,) = await port.until_stored(1)
        assert (arrival.device, arrival.type, arrival.data) == ("d1", "alarm", b"gone")


async def test_the_will_goes_with_a_disconnect(listening, dial):
    port = MemoryPort()
    async with listening(port) as listener:
        async with dial(listener, "d1", will=Will("event", b"gone")) as (wire, _):
            await wire.send(Disconnect())
            assert await wire.receive() is None
        await eventually(lambda: listener.counters.connected == 0, "the socket is closed")
        assert (listener.counters.left, listener.counters.lost) == (1, 0)
    assert port.arrivals == []


DELAYED = Will("event", b"gone", properties=Properties(will_delay_s=3600))
LASTING = Properties(session_expiry_s=7200)


async def test_a_delayed_will_goes_when_the_client_comes_back(listening, dial):
    port = MemoryPort()
    async with listening(port) as listener:
        async with dial(listener, "d1", will=DELAYED, properties=LASTING) as (wire, _):
            wire.cut()
            await eventually(lambda: listener.counters.lost == 1, "the loss is noticed")
        async with dial(listener, "d1", clean_start=False) as (wire, connack):
            assert connack.session_present
            await wire.send(Disconnect())
            assert await wire.receive() is None
    assert port.arrivals == []


async def test_a_delayed_will_comes_when_the_client_begins_anew_or_the_gateway_ends(listening, dial):
    port = MemoryPort()
    async with listening(port) as listener:
        async with dial(listener, "d1", will=DELAYED, properties=LASTING) as (wire, _):
            wire.cut()
            await eventually(lambda: listener.counters.lost == 1, "the loss is noticed")
        async with dial(listener, "d1", will=DELAYED, properties=LASTING) as (wire, _):
            assert len(await port.until_stored(1)) == 1
    await port.until_stored(2)


async def test_a_will_waits_for_room(listening, dial):
    port = MemoryPort(capacity=1)
    port.hold()
    async with listening(port) as listener, dial(listener, "d1", will=Will("event", b"gone")) as (wire, _):
        await wire.publish("t", b"a")
        await port.until(lambda: port.waiting == 1, "the port is full")
        wire.cut()
        await eventually(lambda: listener.counters.lost == 1, "the loss is noticed")
        port.release()
        assert [each.data for each in await port.until_stored(2)] == [b"a", b"gone"]


@pytest.mark.parametrize(
    ("broken", "code"),
    [
        (b"\x36\x04\0\1t\0", Reason.MALFORMED_PACKET),
        (b"\x00\x00", Reason.MALFORMED_PACKET),
        (b"\x32\xff\xff\xff\xff\x7f", Reason.MALFORMED_PACKET),
        (b"\x32\xff\xff\xff\x7f", Reason.PACKET_TOO_LARGE),
        (b"\x32\x05\0\1t\0\0", Reason.PROTOCOL_ERROR),
        (b"\x82\x04\0\1\0\1", Reason.MALFORMED_PACKET),
        (b"\x30\x05\0\2a#\0", Reason.TOPIC_NAME_INVALID),
        (b"\x30\x06\0\1t\x23\0\1", Reason.MALFORMED_PACKET),
        (b"\x30\x07\0\1t\x03\x23\0\x21", Reason.TOPIC_ALIAS_INVALID),
        (b"\x40\x02\0\0", Reason.PROTOCOL_ERROR),
    ],
)
@pytest.mark.fault("N8")
async def test_a_malformed_packet_ends_its_own_connection_and_no_other(listening, dial, broken, code):
    port = MemoryPort()
    async with listening(port) as listener, dial(listener, "good") as (good, _), dial(listener, "bad") as (bad, _):
        await bad.send(Publish(topic="t", payload=b"before"), broken, Publish(topic="t", payload=b"after"))
        assert await bad.receive() == Disconnect(code=code)
        assert await bad.receive() is None
        await good.publish("t", b"good")
        assert await good.receive() == puback(1)
        assert {each.data for each in port.arrivals} == {b"before", b"good"}
        assert listener.counters.malformed == 1


@pytest.mark.parametrize("garbage", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", bytes(300), b"\x30\x03\0\1t"])
async def test_garbage_instead_of_a_connect_is_closed_without_an_answer(listening, dial, garbage):
    async with listening(MemoryPort()) as listener, dial(listener) as (wire, _):
        await wire.send(garbage)
        assert await wire.receive() is None


async def test_a_publish_after_disconnect_is_not_taken(listening, dial):
    port = MemoryPort()
    async with listening(port) as listener, dial(listener, "d1") as (wire, _):
        await wire.send(Publish(topic="t", payload=b"before"), Disconnect(), Publish(topic="t", payload=b"after"))
        assert await wire.receive() is None
    assert [each.data for each in port.arrivals] == [b"before"]


async def test_a_client_may_publish_without_waiting_for_connack(listening, dial):
    port = MemoryPort()
    async with listening(port) as listener, dial(listener) as (wire, _):
        await wire.send(Connect(version=V5, client_id="d1"), *publishes([1]), Disconnect())
        assert isinstance(await wire.receive(), Connack)
        assert [each.data for each in await port.until_stored(1)] == [b"1"]


async def test_the_stream_may_come_byte_by_byte(listening, dial):
    port = MemoryPort()
    async with listening(port) as listener, dial(listener) as (wire, _):
        wire.writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream = b"".join(encode(each, V5) for each in [Connect(version=V5, client_id="d1"), *publishes([1, 2])])
        for byte in stream:
            await wire.send(bytes((byte,)))
            await asyncio.sleep(0)
        assert isinstance(await wire.receive(), Connack)
        assert [await wire.receive() for _ in range(2)] == [puback(1), puback(2)]


async def test_a_message_that_can_never_be_taken_is_stored_as_a_dead_letter_before_it_is_answered(listening, dial):
    port = MemoryPort()
    port.hold()
    async with listening(port) as listener, dial(listener, "d1") as (wire, _):
        await wire.publish("t/other/d1", b"secret", number=1)
        await wire.publish("no/such", b"topic", number=2)
        await wire.publish("t", b"good", number=3)
        await port.until(lambda: port.waiting == 3, "all three are put")
        port.release()
        assert [await wire.receive() for _ in range(3)] == [
            puback(1, Reason.NOT_AUTHORIZED),
            puback(2, Reason.TOPIC_NAME_INVALID),
            puback(3),
        ]
        letters = [decode_dead_letter(each.data) for each in port.arrivals[:2]]
        assert [(each.reason, each.body) for each in letters] == [("foreign-tenant", b"secret"), ("bad-topic", b"topic")]


async def test_users_log_in_and_speak_for_themselves(listening, dial, folder):
    port = MemoryPort()
    users = password_file(folder, d1="one", gw="two")
    async with listening(port, users=users, acl={"gw": ["d?"]}) as listener:
        async with dial(listener, "x", username="d1", password=b"wrong") as (_, connack):
            assert connack.code == Reason.BAD_USER_NAME_OR_PASSWORD
        async with dial(listener, "x", username="nobody", password=b"one", version=V3) as (_, connack):
            assert connack.code == 4
        async with dial(listener, "x") as (_, connack):
            assert connack.code == Reason.NOT_AUTHORIZED
        async with dial(listener, "x", username="d1@acme", password=b"one") as (wire, _):
            await wire.publish("telemetry", number=1)
            await wire.publish("t//d2", number=2)
            assert [await wire.receive() for _ in range(2)] == [puback(1), puback(2, Reason.NOT_AUTHORIZED)]
        async with dial(listener, "x", username="gw", password=b"two") as (wire, _):
            await wire.publish("t//d2", number=1)
            await wire.publish("t//e2", number=2)
            assert [await wire.receive() for _ in range(2)] == [puback(1), puback(2, Reason.NOT_AUTHORIZED)]
        assert [each.device for each in port.arrivals] == ["d1", "gw-1", "d2", "gw-1"]
        assert listener.counters.refused == 3


async def test_packets_after_connect_wait_for_the_password_check(listening, dial, folder):
    port = MemoryPort()
    async with listening(port, users=password_file(folder, d1="one")) as listener:
        async with dial(listener) as (wire, _):
            await wire.send(Connect(version=V5, client_id="a", username="d1", password=b"wrong"), *publishes([1]))
            assert (await wire.receive()).code == Reason.BAD_USER_NAME_OR_PASSWORD
            assert await wire.receive() is None
        assert port.arrivals == []
        async with dial(listener) as (wire, _):
            await wire.send(Connect(version=V5, client_id="a", username="d1", password=b"one"), *publishes([1]))
            assert (await wire.receive()).code == 0
            assert await wire.receive() == puback(1)


async def test_another_user_with_the_same_client_id_takes_nothing_over(listening, dial, folder):
    async with (
        listening(MemoryPort(), users=password_file(folder, d1="one", d2="two")) as listener,
        dial(listener, "same", username="d1", password=b"one") as (first, _),
        dial(listener, "same", username="d2", password=b"two") as (second, _),
    ):
        await first.alive()
        await second.alive()


@pytest.mark.fault("S9")
@pytest.mark.parametrize("left", [{"d2": "two"}, {"d1": "other", "d2": "two"}], ids=["deleted", "another password"])
async def test_connection_of_a_deleted_user_or_changed_password_ends(listening, dial, folder, monkeypatch, left):
    monkeypatch.setattr(tls_files, "QUIET_S", 0)
    monkeypatch.setattr(listener_module, "LOOK_S", 0.05)
    async with (
        listening(MemoryPort(), users=password_file(folder, d1="one", d2="two")) as listener,
        dial(listener, "first", username="d1", password=b"one") as (first, _),
        dial(listener, "second", username="d2", password=b"two") as (second, _),
    ):
        password_file(folder, **left)
        assert await first.receive() == Disconnect(code=Reason.NOT_AUTHORIZED)
        await second.alive()


@pytest.mark.parametrize(("version", "last"), [(V3, None), (V5, Disconnect(code=Reason.SERVER_SHUTTING_DOWN))])
async def test_close_tells_the_clients_and_leaves_nothing_open(dial, version, last):
    port = MemoryPort()
    listener = MqttListener(port, MqttSettings(port=0))
    await listener.start()
    address = listener.addresses["mqtt"]
    async with dial(listener, "d1", version=version) as (wire, _), dial(listener):
        closing = asyncio.create_task(listener.close())
        assert await wire.receive() == last
        wire.writer.close()
        async with asyncio.timeout(LIMIT_S):
            await closing
        assert (listener.counters.connected, listener.counters.shut_down) == (0, 2)
        with pytest.raises(OSError):
            await asyncio.open_connection(*address)
        await listener.close()


async def test_an_address_that_is_taken_is_said_in_one_line(listening):
    async with listening(MemoryPort()) as listener:
        with pytest.raises(Misconfigured, match=r"^mqtt: cannot listen on 127\.0\.0\.1:\d+: another program .*[^\n]$"):
            await MqttListener(MemoryPort(), MqttSettings(port=listener.addresses["mqtt"][1])).start()


async def test_a_bad_users_file_is_said_at_the_start(folder):
    with pytest.raises(Misconfigured, match=r"mqtt\.users: there is no "):
        await MqttListener(MemoryPort(), MqttSettings(port=0, users=str(folder / "none"))).start()


async def test_topics_of_the_settings_are_taken(listening, dial):
    port = MemoryPort()
    topics = [TopicSettings(topic="plant/{device}/#", content_type="text/csv")]
    async with listening(port, topics=topics) as listener, dial(listener, "anyone") as (wire, _):
        await wire.publish("plant/d7/temp", b"1;2")
        (arrival,) = await port.until_stored(1)
        assert (arrival.device, arrival.channel, arrival.content_type) == ("d7", "plant/d7/temp", "text/csv")
