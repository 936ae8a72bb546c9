"""AMQP consumers of events: bridge, Kafka and proton's client."""

import asyncio
import itertools
from contextlib import contextmanager

import pytest
from confluent_kafka import KafkaError, KafkaException
from msgspec.structs import replace
from proton import Message
from proton.reactor import Container, Selector
from proton.utils import BlockingConnection, LinkDetached

from fogline.address import shard_of
from fogline_cloud.access.access_file import AccessFile, ConsumerGrant, Permissions, ServiceGrant
from fogline_cloud.bridge.consumers.consumer_feed import ConsumerFeed
from fogline_lab.line.line import serving

LIMIT_S = 60
_numbers = itertools.count(1)


@contextmanager
def connected(line, container="app-1"):
    made = Container()
    made.container_id = container
    connection = BlockingConnection(f"127.0.0.1:{line.port}", allowed_mechs="ANONYMOUS", timeout=LIMIT_S, container=made)
    try:
        yield connection
    finally:
        connection.close()


def send(connection, line, *bodies, endpoint="event", device="meter-1", **more):
    sender = connection.create_sender(f"{endpoint}/{line.tenant}/{device}")
    for body in bodies:
        sender.send(Message(body, inferred=True, content_type="text/plain", **more), timeout=LIMIT_S)
    sender.close()


def receiver(connection, line, endpoint="event", selector=None, credit=1):
    options = Selector(selector) if selector else None
    name = f"receiver-{next(_numbers)}"  # proton names links by their address alone
    return connection.create_receiver(f"{endpoint}/{line.tenant}", credit=credit, options=options, name=name)


def read(source, count, settle="accept"):
    """Receive messages. A body is a view of the memory of its message, so the caller keeps the message."""
    found = []
    for _ in range(count):
        found.append(source.receive(timeout=LIMIT_S))
        getattr(source, settle)()
    return found


async def test_events_come_once_in_order_and_the_next_consumer_of_the_name_goes_on(line):
    def use():
        with connected(line) as connection:
            send(connection, line, b"1", b"2", b"3", properties={"cloudEvents_id": "r-1"})
            first = read(receiver(connection, line), 2)
        with connected(line) as connection:
            send(connection, line, b"4")
            second = read(receiver(connection, line), 2)
        with connected(line, "app-2") as connection:
            third = read(receiver(connection, line), 4)
        return first, second, third

    async with serving(line):
        first, second, third = await asyncio.to_thread(use)
    assert [bytes(each.body) for each in (*first, *second)] == [b"1", b"2", b"3", b"4"]
    assert [bytes(each.body) for each in third] == [b"1", b"2", b"3", b"4"]
    (message, *_) = first
    assert (message.content_type, message.address) == ("text/plain", f"event/{line.tenant}")
    properties = message.properties
    assert (properties["device_id"], properties["orig_adapter"], properties["cloudEvents_type"]) == ("meter-1", "amqp", "alarm")
    assert properties["creation-time"] > 0


async def test_telemetry_comes_since_the_receiver_was_attached_and_the_next_receiver_of_the_name_goes_on(line):
    def use():
        with connected(line) as connection:
            send(connection, line, b"before", endpoint="telemetry")
            source = receiver(connection, line, endpoint="telemetry")
            send(connection, line, b"1", b"2", endpoint="telemetry")
            first = read(source, 1)
        with connected(line) as connection:
            send(connection, line, b"3", endpoint="telemetry", device=other_partition)
            return first, read(receiver(connection, line, endpoint="telemetry"), 2)

    other_partition = next(each for each in ("a", "b", "c", "d", "e") if shard_of(each, 2) != shard_of("meter-1", 2))
    async with serving(line):
        first, second = await asyncio.to_thread(use)
    assert [bytes(each.body) for each in first] == [b"1"]
    assert {bytes(each.body) for each in second} == {b"2", b"3"}


async def test_a_receiver_whose_position_is_not_to_be_had_ends_with_the_reason(line, monkeypatch):
    def fail(*_):
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no position"))

    def use():
        with connected(line) as connection:
            source = receiver(connection, line, endpoint="telemetry")
            with pytest.raises(LinkDetached, match=r"internal-error.*no position"):
                source.receive(timeout=LIMIT_S)

    monkeypatch.setattr(ConsumerFeed, "_begins", fail)
    async with serving(line):
        await asyncio.to_thread(use)


async def test_unsettled_event_is_delivered_again(line):
    def use():
        with connected(line) as connection:
            send(connection, line, b"1", b"2")
            source = receiver(connection, line, credit=2)
            seen = read(source, 1, settle="release") + read(source, 1)
        with connected(line) as connection:
            return seen + read(receiver(connection, line), 1)

    async with serving(line):
        found = await asyncio.to_thread(use)
    assert [bytes(each.body) for each in found] == [b"1", b"2", b"1"]


async def test_a_selector_selects_and_a_wrong_one_is_refused(line):
    def use():
        with connected(line) as connection:
            send(connection, line, b"1", device="meter-1")
            send(connection, line, b"2", device="lamp-1")
            found = read(receiver(connection, line, selector="device_id LIKE 'lamp-%'"), 1)
            with pytest.raises(LinkDetached, match=r"amqp:invalid-field.*selector"):
                receiver(connection, line, selector="device_id =")
            with pytest.raises(LinkDetached, match="not-implemented"):
                connection.create_receiver(f"event/{line.tenant}/meter-1")
        return found

    async with serving(line):
        assert [bytes(each.body) for each in await asyncio.to_thread(use)] == [b"2"]


def allow(bridge, **grants):
    """Let the bridge decide by these tables of an `access.toml`."""
    permissions = Permissions(AccessFile(service=[ServiceGrant(name="*", devices=["*"])], **grants))
    bridge.listener._policy = bridge._consumers._policy = replace(bridge._policy, access=lambda: permissions)


async def test_only_permitted_consumers_get_events_and_only_of_their_devices(line):
    def use():
        with connected(line) as connection:
            send(connection, line, b"1", device="meter-1")
            send(connection, line, b"2", device="lamp-1")
            found = read(receiver(connection, line), 1)
        with connected(line, "stranger") as connection, pytest.raises(LinkDetached, match="unauthorized"):
            receiver(connection, line)
        return found

    async with serving(line) as bridge:
        allow(bridge, consumer=[ConsumerGrant(name="app-*", devices=["lamp-*"])])
        assert [bytes(each.body) for each in await asyncio.to_thread(use)] == [b"2"]


async def test_a_consumer_whose_right_is_taken_away_gets_nothing_more(line):
    def use():
        with connected(line) as connection:
            source = receiver(connection, line)
            send(connection, line, b"1")
            found = read(source, 1)
            tables["consumer"].clear()
            with connected(line, "sender") as other:  # proton raises the end of a link in whatever waits on its connection
                send(other, line, b"2")
            with pytest.raises(LinkDetached, match=r"unauthorized-access.*may not receive"):
                source.receive(timeout=LIMIT_S)
        return found

    tables = {"consumer": [ConsumerGrant(name="app-1")]}
    async with serving(line) as bridge:
        allow(bridge, **tables)
        assert [bytes(each.body) for each in await asyncio.to_thread(use)] == [b"1"]
        assert not bridge._consumers._consumers


async def test_so_many_consumers_and_no_more(line):
    def use():
        with connected(line) as connection:
            receiver(connection, line)
            with pytest.raises(LinkDetached, match=r"bridge\.max_consumers"):
                receiver(connection, line, endpoint="telemetry")

    line.cloud = replace(line.cloud, bridge=replace(line.cloud.bridge, max_consumers=1))
    async with serving(line):
        await asyncio.to_thread(use)
