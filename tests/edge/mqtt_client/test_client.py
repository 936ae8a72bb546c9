"""The client against a real broker, and against scripted ones for what a real one does not do on request."""

import asyncio
import contextlib
import logging
import subprocess

import pytest

from fogline.dead_letter import decode_dead_letter
from fogline.events.codec import decode_event
from fogline.events.event import Lane, Receipt
from fogline_edge.broker_settings import TopicSettings
from fogline_edge.operate.status import read_status
from fogline_edge.outbox.file.schema import open_database
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.outbox.rows.stored_body import unpack_body
from fogline_edge.profiles.profile import IgnoreReason
from fogline_edge.settings import EdgeSettings
from fogline_lab.port import MemoryPort
from fogline_lab.tcp_line import TcpLine

NOT_AUTHORIZED, GRANTED_QOS_0, GRANTED_QOS_1, SHUTTING_DOWN = 0x87, 0, 1, 0x8B


def payloads(port):
    return [each.data for each in port.arrivals]


async def test_published_message_is_stored_and_acknowledged(broker, connecting, eventually):
    port = MemoryPort()
    async with connecting(port, broker) as client:
        await broker.publish("plant/pump-1/rpm", "1", "2", "3")
        first, *_ = await port.until_stored(3)
        assert payloads(port) == [b"1", b"2", b"3"]
        assert (first.device, first.channel, first.adapter, first.lane) == (
            "pump-1",
            "plant/pump-1/rpm",
            "mqtt-client",
            Lane.TELEMETRY,
        )
        await eventually(lambda: client.counters.acknowledged == 3, "all are acknowledged")
        assert (client.counters.received, client.counters.stored, client.counters.again) == (3, 3, 0)


async def test_a_message_is_acknowledged_only_after_its_commit_and_comes_again_until_then(broker, connecting, eventually, die):
    port = MemoryPort()
    async with connecting(port, broker) as client:
        port.hold()
        await broker.publish("plant/pump-1/rpm", "1", "2")
        await port.until(lambda: port.waiting == 2, "both are put")
        assert client.counters.acknowledged == 0
        die(client)
    other = MemoryPort()
    other.keep("mqtt-client/site/session", port.kept("")["mqtt-client/site/session"], lambda: None)
    async with connecting(other, broker) as client:
        await other.until_stored(2)
        assert payloads(other) == [b"1", b"2"]
        assert client.counters.again == 2
        await eventually(lambda: client.counters.acknowledged == 2, "both are acknowledged")


async def test_message_stored_before_its_acknowledgement_was_lost_is_stored_once(broker, connecting, eventually, die, folder):
    settings = EdgeSettings(tenant="acme", gateway="gw-1", data=str(folder / "data"))
    outbox = Outbox.open(settings)
    committed = []
    outbox.streams.start_sending(lambda _: committed.append(1))
    async with connecting(outbox.port, broker) as client:
        link = client._inflow.connection
        link.acknowledge = lambda _: False
        await broker.publish("plant/pump-1/rpm", "7")
        await eventually(lambda: client.counters.stored == 1, "it is stored")
        die(client)
    await outbox.close()
    outbox = Outbox.open(settings)
    reader = open_database(folder / "data" / "outbox.db", 1_000_000_000)
    try:
        async with connecting(outbox.port, broker) as client:
            await eventually(lambda: client.counters.acknowledged == 1, "the resend is acknowledged")
            assert (client.counters.again, client.counters.duplicate, client.counters.stored) == (1, 1, 0)
        bodies = [decode_event(unpack_body(body)).data for (body,) in reader.execute("SELECT body FROM event")]
        assert bodies.count(b"7") == 1
        state = read_status(folder / "data")["mqtt_clients"]["site"]
        assert (state["broker"], state["connected"]) == (f"127.0.0.1:{broker.port}", True)
    finally:
        reader.close()
        await outbox.close()


async def test_broker_keeps_messages_while_the_gateway_is_away(broker, connecting, eventually):
    port = MemoryPort()
    async with connecting(port, broker) as client:
        pass
    await broker.publish("plant/pump-1/rpm", "1", "2")
    async with connecting(port, broker) as client:
        await port.until_stored(2)
        assert (client.counters.sessions_lost, client.counters.again) == (0, 0)


async def test_the_client_comes_back_after_the_broker_was_killed(broker, connecting, eventually):
    port = MemoryPort()
    async with connecting(port, broker) as client:
        await broker.publish("plant/pump-1/rpm", "1")
        await port.until_stored(1)
        broker.kill()
        await eventually(lambda: client.problem is not None, "the loss is noticed")
        assert not client.reads
        broker.start()
        await eventually(lambda: client.reads, "the client is back")
        assert client.problem is None
        await broker.publish("plant/pump-1/rpm", "2")
        await port.until(lambda: b"2" in payloads(port), "the second is stored")
        assert client.counters.connections == 2


async def test_session_lost_by_the_broker_is_reported_and_its_packet_ids_are_new(mosquitto, connecting, eventually, caplog):
    first, second = mosquitto(), mosquitto()
    port = MemoryPort()
    async with connecting(port, first):
        await first.publish("plant/pump-1/rpm", "1")
        await port.until_stored(1)
    old = port.kept("mqtt-client/site/")["mqtt-client/site/session"]
    with caplog.at_level(logging.WARNING):
        async with connecting(port, second) as client:
            assert client.counters.sessions_lost == 1
            await second.publish("plant/pump-1/rpm", "1")
            await port.until_stored(2)
    assert "no session" in caplog.text
    assert port.arrivals[0].retransmission.slot != port.arrivals[1].retransmission.slot
    assert port.kept("mqtt-client/site/")["mqtt-client/site/session"] != old


async def test_without_room_nothing_is_read_and_nothing_lost(broker, connecting, eventually):
    port = MemoryPort(capacity=5)
    async with connecting(port, broker, receive_maximum=20) as client:
        port.hold()
        await broker.publish("plant/pump-1/rpm", *map(str, range(100)))
        await eventually(lambda: client.paused, "reading stops")
        assert port.waiting == 5
        assert client.counters.received <= 20
        assert client.counters.acknowledged == 0
        port.release()
        await port.until_stored(100)
        assert payloads(port) == [b"%d" % each for each in range(100)]
        await eventually(lambda: client.counters.acknowledged == 100, "all are acknowledged")
        assert client.reads
        assert client.counters.paused >= 1


async def test_a_broker_that_goes_while_there_is_no_room_is_found_after(broker, connecting, eventually):
    port = MemoryPort(capacity=1)
    async with connecting(port, broker) as client:
        port.hold()
        await broker.publish("plant/pump-1/rpm", "1", "2", "3")
        await eventually(lambda: client.paused, "reading stops")
        broker.kill()
        broker.start()
        port.release()
        await port.until(lambda: {b"1", b"2"} <= set(payloads(port)), "what had come is stored")
        await eventually(lambda: client.reads and client.counters.connections == 2, "the client is back")


async def test_qos_0_is_stored_as_well_as_it_can_be(broker, connecting):
    port = MemoryPort()
    async with connecting(port, broker):
        await broker.publish("plant/pump-1/rpm", "1", qos=0)
        (arrival,) = await port.until_stored(1)
        assert arrival.retransmission is None


async def test_qos_2_publish_arrives_at_qos_1(broker, connecting, eventually):
    port = MemoryPort()
    async with connecting(port, broker) as client:
        await broker.publish("plant/pump-1/rpm", "1", qos=2)
        await port.until_stored(1)
        await eventually(lambda: client.counters.acknowledged == 1, "it is acknowledged")


async def test_retained_readings_are_passed_over_and_counted(broker, connecting, eventually):
    port = MemoryPort()
    await broker.publish("plant/pump-1/rpm", "old", retain=True)
    async with connecting(port, broker) as client:
        await eventually(lambda: client.counters.ignored[IgnoreReason.RETAINED] == 1, "the retained one came")
        await broker.publish("plant/pump-1/rpm", "new", retain=True)
        await port.until_stored(1)
        await eventually(lambda: client.counters.acknowledged == 2, "both are acknowledged")
        assert payloads(port) == [b"new"]


async def test_unacceptable_message_is_a_dead_letter(broker, connecting, eventually):
    port = MemoryPort()
    async with connecting(port, broker, max_payload_bytes=256) as client:
        await broker.publish("plant//rpm", "1")  # a level without a name
        await broker.publish("plant/pump-1/log", "x" * 300)
        arrivals = await port.until_stored(2)
        reasons = [decode_dead_letter(each.data).reason for each in arrivals]
        assert reasons == ["bad-topic", "too-big"]
        assert [each.device for each in arrivals] == ["gw-1", "gw-1"]
        await eventually(lambda: client.counters.acknowledged == 2, "both are acknowledged")


@pytest.fixture
def answering():
    """Starts brokers that take every CONNECT, answer SUBSCRIBE of one filter with `code`, and then send `more`."""

    async def answering(code, more=b""):
        async def serve(reader, writer):
            with contextlib.suppress(asyncio.IncompleteReadError, OSError):
                while True:
                    kind, length = await reader.readexactly(2)
                    while length & 0x80:
                        length = (length & 0x7F) + ((await reader.readexactly(1))[0] << 7)
                    body = await reader.readexactly(length)
                    if kind == 0x10:
                        writer.write(b"\x20\x03\x00\x00\x00")
                    if kind == 0x82:
                        writer.write(b"\x90\x04" + body[:2] + bytes((0, code)) + more)

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        return server.sockets[0].getsockname()[1]

    return answering


@pytest.fixture
def guarded(mosquitto, folder):
    """A broker that wants a password, and the right one in a file."""
    users = folder / "users"
    subprocess.run(["mosquitto_passwd", "-b", "-c", str(users), "gateway", "right-secret"], check=True)
    users.chmod(0o644)
    return mosquitto("allow_anonymous false", f"password_file {users}")


async def test_a_wrong_password_is_one_clear_line_and_is_tried_again(guarded, connecting, eventually, folder, caplog):
    secret = folder / "password"
    secret.write_text("wrong-secret\n")
    with caplog.at_level(logging.DEBUG):
        async with connecting(MemoryPort(), guarded, wait=False, username="gateway", password_file=str(secret)) as client:
            await eventually(lambda: client.counters.failures >= 3, "it is tried again")
            said = [each.message for each in caplog.records if each.name.startswith("fogline")]
            assert len(said) == 1
            assert "Not authorized" in said[0]
            assert "password_file" in said[0]
            assert str(guarded.port) in said[0]
            secret.write_text("right-secret\n")
            await eventually(lambda: client.reads, "the new password is read")
    assert "secret" not in caplog.text


async def test_subscription_refused_by_the_broker_is_reported(connecting, answering):
    port = await answering(NOT_AUTHORIZED)
    async with connecting(MemoryPort(), port) as client:
        assert "does not let fogline-acme-gw-1-site subscribe to plant/+/#" in client.problem


async def test_subscription_limited_to_qos_0_is_reported(connecting, answering):
    port = await answering(GRANTED_QOS_0)
    async with connecting(MemoryPort(), port) as client:
        assert "at QoS 0 only" in client.problem


async def test_shutdown_of_a_broker_is_reported_with_its_reason(connecting, eventually, answering):
    port = await answering(GRANTED_QOS_1, bytes((0xE0, 1, SHUTTING_DOWN)))
    async with connecting(MemoryPort(), port, wait=False) as client:
        await eventually(lambda: client.problem is not None, "the end is noticed")
        assert "the broker ends the connection: Server shutting down" in client.problem


async def test_a_packet_id_of_an_older_connection_is_never_acknowledged_to_a_newer_one(connecting, eventually, answering):
    memory = MemoryPort()
    memory.hold()
    port = await answering(GRANTED_QOS_1, b"\x32\x0e\x00\x09plant/p/x\x00\x01\x00")
    async with connecting(memory, port, wait=False) as client:
        await memory.until(lambda: memory.waiting == 1, "the name of the session is kept")
        memory.release(1)
        await memory.until(lambda: memory.waiting == 2, "the state is kept and the message is put")
        client._inflow.connection.cut()
        await memory.until(lambda: memory.waiting == 4, "the client is back, with another state and a session of another name")
        memory.release(2)
        assert (client.counters.unacknowledged, client.counters.acknowledged) == (1, 0)
        memory.release()
        await eventually(lambda: client.counters.acknowledged == 1, "the copy of the new session is acknowledged")


async def test_the_loop_goes_on_while_a_broker_does_not_answer(connecting, eventually):
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        async with connecting(MemoryPort(), port, wait=False, connect_timeout_s=0.2) as client:
            await eventually(lambda: client.problem is not None, "it gives up")
            assert "does not answer CONNECT within 0.2 s" in client.problem
    finally:
        server.close()


async def test_missing_broker_is_reported(connecting, eventually):
    async with connecting(MemoryPort(), 1, wait=False) as client:
        await eventually(lambda: client.counters.failures >= 2, "it is tried again")
        assert "cannot connect to 127.0.0.1:1" in client.problem


async def test_bytes_that_are_no_mqtt_end_the_connection(connecting, eventually):
    async def talk(reader, writer):
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 100)
        await writer.drain()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    try:
        async with connecting(MemoryPort(), server.sockets[0].getsockname()[1], wait=False) as client:
            await eventually(lambda: client.counters.failures >= 2, "it is tried again")
            assert client.counters.connections == 0
    finally:
        server.close()


async def test_over_a_slow_line_everything_arrives_in_order(broker, connecting, eventually):
    port = MemoryPort()
    numbers = [b"%04d" % each for each in range(200)]
    async with TcpLine(broker.port, bits_per_s=400_000) as line, connecting(port, line.port) as client:
        await broker.publish("plant/pump-1/rpm", *[each.decode() for each in numbers])
        await port.until_stored(200)
        assert payloads(port) == numbers
        await eventually(lambda: client.counters.acknowledged == 200, "all are acknowledged")


async def test_a_line_that_breaks_again_and_again_loses_nothing(broker, connecting, eventually):
    port = MemoryPort()
    total = 300
    async with connecting(port, broker, receive_maximum=10) as client:
        publishing = asyncio.create_task(broker.publish("plant/pump-1/rpm", *map(str, range(total))))
        for count in (20, 40, 60, 80, 100):
            await eventually(lambda count=count: client.counters.received >= count, "some came")
            link = client._inflow.connection
            if link is not None:
                link.cut()
        await publishing
        await port.until_stored(total)
        await eventually(lambda: port.waiting == 0 and client.reads, "all is quiet")
        assert sorted(payloads(port), key=int) == [b"%d" % each for each in range(total)]
    assert client.counters.connections >= 3


async def test_the_last_turn_before_the_end_is_not_put_twice(broker, connecting, eventually):
    port = MemoryPort()
    async with connecting(port, broker) as client:
        port.hold()
        await broker.publish("plant/pump-1/rpm", "1")
        await port.until(lambda: port.waiting == 1, "it is put")
    port.release()
    assert client.counters.unacknowledged == 1
    async with connecting(port, broker) as client:
        await eventually(lambda: client.counters.acknowledged == 1, "the resend is acknowledged")
    assert port.receipts == [Receipt.STORED, Receipt.DUPLICATE]


async def test_closing_twice_and_without_start_is_safe(broker, connecting):
    async with connecting(MemoryPort(), broker) as client:
        await client.close()
        assert client.counters.connected == 0
        assert client._task is None


async def test_two_clients_have_sessions_of_their_own(broker, connecting):
    port = MemoryPort()
    async with (
        connecting(port, broker, name="a") as one,
        connecting(port, broker, name="b", topics=[TopicSettings(topic="farm/{device}")]) as other,
    ):
        assert one.client_id == "fogline-acme-gw-1-a"
        await broker.publish("plant/p/x", "1")
        await broker.publish("farm/f", "2")
        await port.until_stored(2)
        assert (one.counters.received, other.counters.received) == (1, 1)
