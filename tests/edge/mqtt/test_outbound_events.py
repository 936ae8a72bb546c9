"""Filters of subscribers, topics of events, and what waits for a subscriber. Pure."""

import pytest

from fogline.errors import Misconfigured
from fogline.events.codec import Beacon
from fogline.events.event import Event, Lane, TimeQuality
from fogline_edge.adapters.mqtt.counters import MqttCounters
from fogline_edge.adapters.mqtt.hono.event_filters import SubscriberRights, covers
from fogline_edge.adapters.mqtt.hono.local_events import LocalMessage, event_message, event_topic, message
from fogline_edge.adapters.mqtt.protocol.framing import Framer
from fogline_edge.adapters.mqtt.protocol.packets import Publish
from fogline_edge.adapters.mqtt.protocol.primitives import V5, PacketType, ProtocolError
from fogline_edge.adapters.mqtt.session.effects import ListenMode, Send
from fogline_edge.adapters.mqtt.session.outbound import ClientLimits
from fogline_edge.adapters.mqtt.session.outbound_events import (
    MAX_WAITING,
    MAX_WAITING_BYTES,
    TOTAL_BYTES,
    FeedBudget,
    OutboundEvents,
)
from fogline_lab.mqtt_packets import decode

LIMITS = ClientLimits(V5, 65_535, None, lambda: Beacon("boot", 0))


@pytest.mark.parametrize(
    ("wide", "narrow", "holds"),
    [
        ("#", "a/b", True),
        ("a/#", "a", True),
        ("a/#", "a/b/c", True),
        ("a/+/c", "a/b/c", True),
        ("a/+", "a/b/c", False),
        ("a/+", "a", False),
        ("a/b", "a/+", False),
        ("a/+", "a/+", True),
        ("a/+", "a/#", False),
        ("a/+/#", "a/+/#", True),
        ("a/b/#", "a/#", False),
        ("a", "a/b", False),
        ("+/+", "a/", True),
    ],
)
def test_filter_covers_all_topics_of_another_filter_or_not(wide, narrow, holds):
    assert covers(wide, narrow) is holds


@pytest.mark.parametrize(
    ("entries", "acl", "said"),
    [
        ({"hall": ["a/#/b"]}, {}, "mqtt.subscribers: hall = 'a/#/b' is no topic filter of MQTT"),
        ({"hall": []}, {}, "mqtt.subscribers: hall may subscribe to nothing"),
        ({"hall": ["#"]}, {"hall": ["*"]}, "hall is in mqtt.acl and in mqtt.subscribers"),
    ],
)
def test_entry_of_a_subscriber_that_cannot_be_used_is_named(entries, acl, said):
    with pytest.raises(Misconfigured) as error:
        SubscriberRights(entries, acl)
    assert said in str(error.value)


def event(**more) -> Event:
    values = {
        "id": "E1",
        "tenant": "acme",
        "device": "d1",
        "type": "telemetry",
        "subject": "hall/temp",
        "recordedtime": "2026-11-28T17:00:00.000000Z",
        "content_type": "text/plain",
        "data": b"21.5",
        "gateway": "gw-1",
        "stream": "0" * 16,
        "sequence": 7,
        "lane": Lane.TELEMETRY,
        "timequality": TimeQuality.SYNCED,
        "dedup": "weak",
        "adapter": "mqtt",
    }
    return Event(**values | more)


@pytest.mark.parametrize(
    ("subject", "lane", "topic"),
    [
        ("hall/temp", Lane.TELEMETRY, "telemetry/acme/d1/hall/temp"),
        ("hall/temp", Lane.BULK, "telemetry/acme/d1/hall/temp"),
        ("bthome", Lane.ALARM, "event/acme/d1/bthome"),
        ("telemetry/acme/d1", Lane.TELEMETRY, "telemetry/acme/d1"),
        ("t//d1", Lane.TELEMETRY, "telemetry/acme/d1"),
        ("e", Lane.ALARM, "event/acme/d1"),
        ("/a+b/#%", Lane.TELEMETRY, "telemetry/acme/d1/a%2Bb/%23%25"),
        ("", Lane.TELEMETRY, "telemetry/acme/d1"),
    ],
)
def test_topic_of_an_event_has_honos_shape_and_its_channel(subject, lane, topic):
    assert event_topic(event(subject=subject, lane=lane)) == topic


def test_message_of_an_event_is_a_cloud_event_in_binary_mode():
    found = event_message(event(time="2026-11-28T16:59:59Z"))
    attributes = dict(found.properties.user)
    assert (found.payload, found.properties.content_type) == (b"21.5", "text/plain")
    assert {name: attributes[name] for name in ("specversion", "id", "source", "type", "subject", "time", "device")} == {
        "specversion": "1.0",
        "id": "E1",
        "source": "/acme/devices/d1",
        "type": "telemetry",
        "subject": "hall/temp",
        "time": "2026-11-28T16:59:59Z",
        "device": "d1",
    }


@pytest.mark.parametrize("topic", ["", "a/+", "#", "a\0"])
def test_message_needs_a_topic_name(topic):
    with pytest.raises(ValueError, match="no topic name"):
        message(topic, b"", {})


class Subscriber:
    """One session, and what was sent to it."""

    def __init__(self, budget: FeedBudget | None = None, **limits) -> None:
        self.counters = MqttCounters()
        self.modes: list[ListenMode] = []
        self.out = OutboundEvents(self.modes.append, budget or FeedBudget(), self.counters)
        self.limits = LIMITS._replace(**limits)
        self.got: list[Publish] = []
        self.take(self.out.begin(self.limits))

    def take(self, effects) -> None:
        for each in effects:
            if isinstance(each, Send):
                framer = Framer(1_000_000, first=None)
                framer.feed(each.data)
                packet = framer.next_packet()
                assert packet is not None
                self.got.append(decode(*packet, V5))

    def event(self, number: int, qos: int = 1, size: int = 10) -> None:
        self.take(self.out.publish(LocalMessage("t", b"%0*d" % (size, number)), qos, ()))

    def acknowledge(self) -> None:
        """Acknowledge all that came, until nothing more comes."""
        done = 0
        while done < len(self.got):
            packet = self.got[done]
            done += 1
            if packet.qos:
                self.take(self.out.acknowledged(PacketType.PUBACK, packet.packet_id, 0))

    @property
    def numbers(self) -> list[int]:
        return [int(each.payload[-6:]) for each in self.got]


def test_events_beyond_the_window_wait_for_acknowledgements_in_order():
    found = Subscriber(receive_maximum=2)
    for number in range(5):
        found.event(number)
    assert found.numbers == [0, 1]
    found.acknowledge()
    assert found.numbers == [0, 1, 2, 3, 4]
    assert (found.out.waiting, found.counters.forwarded, found.out.discarded) == (0, 5, 0)


def test_bytes_in_flight_are_bounded():
    found = Subscriber()
    for number in range(20):
        found.event(number, size=10_000)
    assert len(found.got) == 7


@pytest.mark.parametrize("bound", ["number", "bytes"])
def test_subscriber_that_does_not_read_loses_its_oldest_events_and_they_are_counted(bound):
    size = 10 if bound == "number" else 20_000
    most = MAX_WAITING if bound == "number" else MAX_WAITING_BYTES // (size + 1)
    found = Subscriber()
    found.out.paused = True
    for number in range(most + 5):
        found.event(number, size=size)
    assert (found.out.waiting, found.out.discarded, found.counters.forward_discarded) == (most, 5, {"queue": 5})
    found.out.paused = False
    found.take(found.out.advance())
    found.acknowledge()
    assert found.numbers == list(range(5, most + 5))


def test_all_sessions_share_one_budget_and_give_it_back():
    budget = FeedBudget()
    slow = [Subscriber(budget) for _ in range(12)]
    for each in slow:
        each.out.paused = True
        for number in range(60):
            each.event(number, size=20_000)
    assert budget.used <= TOTAL_BYTES + 12 * 20_001, "each session may keep one event beyond it"
    assert sum(each.out.discarded + each.out.waiting for each in slow) == 12 * 60
    fast = Subscriber(budget)
    fast.event(1)
    fast.acknowledge()
    assert fast.numbers == [1], "a subscriber that reads gets its events beside them"
    for each in slow:
        each.take(each.out.end(persistent=False))
    assert budget.used == 0


def test_event_at_qos_0_is_sent_now_or_not_at_all():
    found = Subscriber()
    found.event(1, qos=0)
    found.out.paused = True
    found.event(2, qos=0)
    found.out.paused = False
    found.take(found.out.advance())
    found.out.end(persistent=True)
    found.event(3, qos=0)
    assert found.numbers == [1]
    assert found.counters.forward_discarded == {"qos0": 2}


def test_session_goes_on_after_its_connection_with_dup_for_what_was_sent():
    found = Subscriber(receive_maximum=2)
    for number in range(3):
        found.event(number)
    assert found.out.end(persistent=True) == [None]
    assert found.modes[-1] is ListenMode.AWAY
    found.event(3)
    found.got.clear()
    found.take(found.out.begin(LIMITS))
    assert [(int(each.payload[-6:]), each.dup) for each in found.got] == [(0, True), (1, True), (2, False), (3, False)]
    assert len({each.packet_id for each in found.got}) == 4


def test_event_that_is_larger_than_the_client_accepts_is_discarded_and_the_next_one_is_sent():
    found = Subscriber(maximum_packet_bytes=100)
    found.event(1, size=200)
    found.event(2)
    assert (found.numbers, found.counters.forward_discarded) == ([2], {"size": 1})


def test_acknowledgement_of_qos_2_breaks_the_protocol():
    found = Subscriber()
    found.event(1)
    with pytest.raises(ProtocolError):
        found.out.acknowledged(PacketType.PUBREC, 1, 0)
    assert found.out.acknowledged(PacketType.PUBACK, 77, 0) == []
