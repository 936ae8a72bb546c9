"""A local subscriber: a client that reads events, and does nothing else: pure.

Its session lives in memory only. After a restart of the gateway it is over, which CONNACK says (Session Present 0), so that its
client subscribes again: events are for now, and what must not be missed is in the outbox and goes to the cloud.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from fogline_edge.adapters.mqtt.counters import MqttCounters
from fogline_edge.adapters.mqtt.hono.event_filters import EventSubscriptions
from fogline_edge.adapters.mqtt.hono.intake import ClientKey
from fogline_edge.adapters.mqtt.hono.local_events import LocalMessage
from fogline_edge.adapters.mqtt.protocol.packets import Disconnect, Publish, Subscribe
from fogline_edge.adapters.mqtt.protocol.primitives import V5, Reason
from fogline_edge.adapters.mqtt.session.downstream import Downstream
from fogline_edge.adapters.mqtt.session.effects import Close, CloseReason, Effect, Listen, ListenMode
from fogline_edge.adapters.mqtt.session.inbound import Inbound
from fogline_edge.adapters.mqtt.session.outbound_events import FeedBudget, OutboundEvents
from fogline_edge.adapters.mqtt.session.session_state import SessionState

_READ_ONLY = "a subscriber must not publish (mqtt.subscribers)"


class SubscriberState(SessionState):
    """The session of a subscriber. `rights`: the topic filters that it may subscribe to."""

    outbound: OutboundEvents

    def __init__(
        self, key: ClientKey, expiry_s: int, rights: Sequence[str], budget: FeedBudget, counters: MqttCounters
    ) -> None:
        super().__init__(key, b"", expiry_s)
        self.filters = EventSubscriptions(rights)
        self.outbound = OutboundEvents(partial(Listen, self), budget, counters)

    def deliver(self, message: LocalMessage) -> list[Effect]:
        """See `EventListener.deliver`."""
        found = self.filters.matching(message.topic)
        if not found:
            return []
        identifiers = (each.identifier for each in found if each.identifier)
        return self.outbound.publish(message, max(each.qos for each in found), identifiers)

    @property
    def discarded(self) -> int:
        """See `EventListener.discarded`."""
        return self.outbound.discarded


@dataclass(eq=False, slots=True, weakref_slot=True)
class EventDownstream(Downstream):
    """Subscriptions to events of one connection."""

    state: SubscriberState

    def take_session(self) -> list[Effect]:
        """Take the session over; its former connection ends (5: 3.1.4)."""
        self.state.owner = self
        return self.state.outbound.end(persistent=True)

    def begin(self) -> list[Effect]:
        """Continue with the events that wait: CONNACK is sent."""
        return [*self._update_reachable(), *self.state.outbound.begin(self.limits)]

    def end(self) -> list[Effect]:
        """Nothing depends on the connection: `OutboundEvents.end` tells the feed."""
        return []

    def _add(self, packet: Subscribe, identifier: int) -> list[int]:
        return [self.state.filters.grant(name, options, identifier) for name, options in packet.filters]

    def _remove(self, name: str) -> int:
        return Reason.NO_SUBSCRIPTION_EXISTED if self.state.filters.pop(name, None) is None else Reason.SUCCESS

    def _update_reachable(self) -> list[Effect]:
        """Listen as long as there is a subscription."""
        return [Listen(self.state, ListenMode.ON if self.state.filters else ListenMode.OFF)]


class ReadOnly(Inbound):
    """PUBLISHes of a subscriber: the first one ends the connection."""

    def publish(self, publish: Publish, now: float) -> Sequence[Effect]:  # noqa: ARG002 - whatever it is
        """Refuse a PUBLISH. 3.1.1 has no packet for that, so the connection ends ([MQTT-3.3.5-2])."""
        version = self.ack_order.version
        data = Disconnect(code=Reason.NOT_AUTHORIZED).encode(V5) if version == V5 else b""
        return (Close(data, CloseReason.REFUSED, _READ_ONLY),)


class SessionKind:
    """The sessions of devices: they have commands."""

    reads_events = False

    def new(self, key: ClientKey, epoch: bytes, expiry_s: int) -> SessionState:
        """Return a new session. Its arguments are those of `SessionState`."""
        return SessionState(key, epoch, expiry_s)

    def fits(self, state: SessionState) -> bool:
        """Return True for a session of this kind."""
        return isinstance(state, SubscriberState) is self.reads_events


class SubscriberKind(SessionKind):
    """The sessions of one subscriber: they have events, and no epoch, so that they are never stored."""

    reads_events = True

    def __init__(self, rights: Sequence[str], budget: FeedBudget, counters: MqttCounters) -> None:
        self._rights, self._budget, self._counters = rights, budget, counters

    def new(self, key: ClientKey, epoch: bytes, expiry_s: int) -> SessionState:  # noqa: ARG002 - it has none
        """See `SessionKind.new`."""
        return SubscriberState(key, expiry_s, self._rights, self._budget, self._counters)


def session_kind(rights: Sequence[str] | None, budget: FeedBudget, counters: MqttCounters) -> SessionKind:
    """Return the kind of a client's sessions. `rights`: those of a subscriber, None for a device."""
    return SessionKind() if rights is None else SubscriberKind(rights, budget, counters)
