"""One consumer of events, with a feed and a link of the test."""

import asyncio
import time

import pytest

from fogline.address import Reports
from fogline.amqp.outcome import ACCEPTED, MODIFIED, RELEASED, UNKNOWN, rejected
from fogline.errors import Unreachable
from fogline.events.event import Lane
from fogline_cloud.access.access_file import Quota
from fogline_cloud.access.policy import Policy
from fogline_cloud.access.principal import Principal, PrincipalKind
from fogline_cloud.access.quotas import Use
from fogline_cloud.bridge.consumers import consumers
from fogline_cloud.bridge.consumers.consumers import EventConsumer
from fogline_cloud.bridge.peers.peer import Peer
from fogline_cloud.kafka.committed_records import CommittedRecord
from fogline_cloud.kafka.records import record_of
from fogline_cloud.selector import read_selector
from fogline_lab.amqp import within
from fogline_lab.events import make_event

TOPIC = "hono.event.acme"


def record(offset, device="lamp-1", **more):
    made = record_of(make_event(device=device, lane=Lane.ALARM, **more))
    return CommittedRecord(TOPIC, 0, offset, made.key, made.value, made.headers)


class Feed:
    """Has what the consumer grants, as totals since the start."""

    def __init__(self):
        self.granted, self.granted_bytes, self.settled, self.changed = [], [], [], asyncio.Event()

    def grant(self, events, size_bytes):
        self.granted.append(events)
        self.granted_bytes.append(size_bytes)
        self.changed.set()

    def settle(self, partition, offset):
        assert partition == (TOPIC, 0)
        self.settled.append(offset)


class Link:
    def __init__(self, room=100):
        self.room, self.closed, self.sent, self._more = room, False, [], asyncio.Event()

    def send(self, message):
        outcome = asyncio.get_running_loop().create_future()
        self.sent.append((message, outcome))
        self._more.set()
        return outcome

    async def until(self, count):
        async def sent():
            while len(self.sent) < count:
                self._more.clear()
                await self._more.wait()

        await within(sent(), f"{len(self.sent)} of {count} were sent")


def consumer(selector=None, room=100, quota=None):
    peer = Peer(Principal(PrincipalKind.CLIENT, "acme", "app-1", "asserted"), None, None)
    if quota is not None:
        peer.use = Use(quota, time.monotonic())
    selects = read_selector(selector) if selector else None
    made = EventConsumer(peer, None, Reports("event", "acme", ""), Policy("acme", 2), selects)
    made.feed, made.sender = Feed(), Link(room)
    return made


async def settle(made, at, outcome):
    made.sender.sent[at][1].set_result(outcome)
    await asyncio.sleep(0)


async def test_an_event_counts_until_it_is_settled_and_the_window_is_that_of_the_credit():
    made = consumer(room=5)
    made.on_credit()
    made.deliver([made.select(record(7)), made.select(record(9))])
    assert made.feed.granted == [5, 7]  # the link's room is the test's
    await settle(made, 1, ACCEPTED)
    await settle(made, 0, rejected("amqp:decode-error", "no"))
    assert made.feed.settled == [9, 7]


async def test_no_more_than_the_window_is_on_its_way(monkeypatch):
    monkeypatch.setattr(consumers, "WINDOW", 2)
    made = consumer()
    made.deliver([made.select(record(1)), made.select(record(2))])
    assert made.feed.granted == [2]
    await settle(made, 0, UNKNOWN)
    assert (made.feed.granted, made.feed.settled) == ([2, 3], [1])


async def test_no_more_bytes_than_the_window_are_on_their_way(monkeypatch):
    monkeypatch.setattr(consumers, "WINDOW_BYTES", 3)
    made = consumer()
    made.deliver([made.select(record(1, data=b"12"))])
    made.deliver([made.select(record(2, data=b"34"))])
    assert made.feed.granted_bytes == [3, 4]
    await settle(made, 0, ACCEPTED)
    assert made.feed.granted_bytes == [3, 4, 5]


async def test_a_consumer_over_its_quota_gets_events_later():
    made = consumer(quota=Quota(kind="client", events_s=20, bytes_s=1000))
    made.on_credit()
    assert (made.feed.granted, made.feed.granted_bytes) == ([20], [1000])
    made.deliver([made.select(record(each)) for each in range(21)])
    assert made.feed.granted[1:] == [21], "nothing more before the quota has room"
    made.feed.changed.clear()
    await within(made.feed.changed.wait(), "the quota has no room again")
    assert made.feed.granted[2] > 21


@pytest.mark.parametrize("outcome", [RELEASED, MODIFIED], ids=str)
async def test_released_event_is_delivered_again_and_not_settled(monkeypatch, outcome):
    monkeypatch.setattr(consumers, "RETRY_S", 0.01)
    made = consumer()
    made.deliver([made.select(record(1)), made.select(record(2))])
    await settle(made, 0, outcome)
    await settle(made, 1, ACCEPTED)
    await made.sender.until(3)
    assert made.feed.settled == [2]
    assert made.sender.sent[2][0] is made.sender.sent[0][0]
    await settle(made, 2, ACCEPTED)
    assert made.feed.settled == [2, 1]


async def test_delivery_in_flight_when_the_link_ends_is_not_settled():
    made = consumer()
    made.deliver([made.select(record(1))])
    made.sender.closed = True
    made.sender.sent[0][1].set_exception(Unreachable("gone"))
    await asyncio.sleep(0)
    made.deliver([made.select(record(2))])
    assert (made.feed.settled, len(made.sender.sent)) == ([], 1)


async def test_message_has_the_fields_of_its_record():
    made = consumer("device_id = 'lamp-1' AND cloudEvents_type = 'alarm'")
    assert made.select(record(1, device="lamp-2", type="alarm")) is None
    message = made.select(record(1, type="alarm", data=b"x", content_type="text/plain")).message
    assert (message.body, message.content_type, message.to) == (b"x", "text/plain", "event/acme")
    assert message.properties["device_id"] == "lamp-1"
    assert "fogline_chain" not in message.properties
    assert made.select(record(1, content_type="application/vnd.fogline-gap+json")) is None


@pytest.mark.fault("X11")
async def test_an_event_at_which_the_selection_fails_is_passed_over_and_the_next_one_comes(monkeypatch):
    made, convert = consumer(), consumers.message_of

    def stumble(record, *rest):
        if record.offset == 1:
            raise OverflowError("nobody thought of this")
        return convert(record, *rest)

    monkeypatch.setattr(consumers, "message_of", stumble)
    assert [made.select(record(offset)) is None for offset in (1, 2)] == [True, False]
