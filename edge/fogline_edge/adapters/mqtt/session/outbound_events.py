"""Events to one local subscriber (5: 3.3, 3.4, 4.4, 4.9): pure.

An event at QoS 0 is sent now, or not at all: while the subscriber does not read, or is away, it is discarded. An event at QoS 1
waits until the subscriber has acknowledged it. What waits is bounded in number and bytes, for the session and for all sessions
together; beyond that the oldest event that was not sent is discarded. Every discarded event is counted.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import msgspec

from fogline_edge.adapters.mqtt.counters import MqttCounters
from fogline_edge.adapters.mqtt.hono.local_events import LocalMessage
from fogline_edge.adapters.mqtt.protocol.packets import Publish
from fogline_edge.adapters.mqtt.protocol.primitives import V5, PacketType, ProtocolError
from fogline_edge.adapters.mqtt.protocol.properties import NONE
from fogline_edge.adapters.mqtt.session.effects import Effect, Listen, ListenMode
from fogline_edge.adapters.mqtt.session.outbound import ClientLimits, OutboundCommands

MAX_WAITING, MAX_WAITING_BYTES = 10_000, 1024 * 1024
"""The most events of a session that are not acknowledged, and their bytes."""
TOTAL_BYTES = 8 * 1024 * 1024
"""The most bytes of events of all sessions that are not acknowledged; a session without any keeps one beyond it."""
_IN_FLIGHT, _IN_FLIGHT_BYTES = 100, 65_536  # sent at once: what a connection may have in its write buffer
_MAX_PACKET_ID = 65_535


@dataclass(slots=True)
class FeedBudget:
    """The bytes that wait in all sessions of a listener."""

    used: int = 0
    limit: int = TOTAL_BYTES


class WaitingEvent(msgspec.Struct):
    """One event at QoS 1. `packet_id`: 0 until it was sent once."""

    publish: Publish
    size: int
    packet_id: int = 0


class OutboundEvents(OutboundCommands):
    """The events of one session. A subscriber gets no commands, so that half of the class stays empty.

    `told`: the session, as the feed of events knows it. `discarded`: events that were discarded.
    """

    def __init__(self, told: Callable[[ListenMode], Listen], budget: FeedBudget, counters: MqttCounters) -> None:
        super().__init__(lambda then: [] if then is None else list(then()))
        self.discarded = 0
        self._told = told
        self._budget = budget
        self._counters = counters
        self._unsent: deque[WaitingEvent] = deque()
        self._sent: dict[int, WaitingEvent] = {}
        self._bytes = 0
        self._sent_bytes = 0
        self._last_id = 0
        self._ids: set[int] = set()
        self._subscriber: ClientLimits | None = None

    @property
    def waiting(self) -> int:
        """Number of events that the subscriber has not acknowledged."""
        return len(self._unsent) + len(self._sent)

    def may_resume(self, client: ClientLimits) -> bool:  # noqa: ARG002 - events have no deadline
        """Return True: any connection can go on."""
        return True

    def publish(self, message: LocalMessage, qos: int, identifiers: Iterable[int]) -> list[Effect]:
        """Send an event, or queue it at QoS 1."""
        properties = msgspec.structs.replace(message.properties, subscription_id=tuple(identifiers))
        publish = Publish(topic=message.topic, payload=message.payload, qos=qos, properties=properties)
        if qos:
            return self._queue_up(WaitingEvent(publish, message.size))
        client = self._subscriber
        if client is None or self.paused:
            return self._discard("qos0")
        return self._sending(publish, client)

    def begin(self, client: ClientLimits) -> list[Effect]:
        """Send what was not acknowledged again, in its order (5: 4.4), then what waits."""
        self._subscriber, self.paused = client, False
        self._unsent.extendleft(reversed(self._sent.values()))
        self._sent.clear()
        self._sent_bytes = 0
        return self.advance()

    def end(self, *, persistent: bool) -> list[Effect]:
        """Note the end of the connection. `persistent`: the session outlives it, and goes on to queue events."""
        self._subscriber = None
        if persistent:
            return [self._told(ListenMode.AWAY)]
        self._budget.used -= self._bytes
        self._unsent.clear()
        self._sent.clear()
        self._ids.clear()
        self._bytes = self._sent_bytes = 0
        return [self._told(ListenMode.OFF)]

    def acknowledged(self, kind: PacketType, packet_id: int, code: int) -> list[Effect]:  # noqa: ARG002 - a refusal ends it too
        """Handle a PUBACK. Raises `ProtocolError` for anything else: no event is sent at QoS 2."""
        if kind is not PacketType.PUBACK:
            raise ProtocolError(f"packet {packet_id} does not wait for {kind.name}")
        event = self._sent.pop(packet_id, None)
        if event is None:
            return []
        self._sent_bytes -= event.size
        self._free(event)
        return self.advance()

    def advance(self) -> list[Effect]:
        """Send as much as the subscriber may get now."""
        client, effects = self._subscriber, list[Effect]()
        if client is None or self.paused:
            return effects
        most = min(client.receive_maximum, _IN_FLIGHT)
        while self._unsent and len(self._sent) < most and self._sent_bytes < _IN_FLIGHT_BYTES:
            event = self._unsent.popleft()
            again = event.packet_id > 0
            event.packet_id = event.packet_id or self._next_id()
            sending = self._sending(msgspec.structs.replace(event.publish, packet_id=event.packet_id, dup=again), client)
            if not sending:
                self._free(event)
                continue
            self._sent[event.packet_id] = event
            self._sent_bytes += event.size
            effects += sending
        return effects

    def _queue_up(self, event: WaitingEvent) -> list[Effect]:
        while self._unsent and not self._has_room(event.size):
            self._free(self._unsent.popleft())
            self._discard("queue")
        if self.waiting and not self._has_room(event.size):
            return self._discard("queue")
        self._unsent.append(event)
        self._bytes += event.size
        self._budget.used += event.size
        return self.advance()

    def _has_room(self, size: int) -> bool:
        own = self.waiting < MAX_WAITING and self._bytes + size <= MAX_WAITING_BYTES
        return own and self._budget.used + size <= self._budget.limit

    def _sending(self, publish: Publish, client: ClientLimits) -> list[Effect]:
        if client.version != V5:
            publish = msgspec.structs.replace(publish, properties=NONE)
        sending: Sequence[Effect] = client.send(publish)
        if not sending:
            return self._discard("size")
        self._counters.forwarded += 1
        return list(sending)

    def _discard(self, reason: str) -> list[Effect]:
        self.discarded += 1
        self._counters.forward_discarded[reason] = self._counters.forward_discarded.get(reason, 0) + 1
        return []

    def _free(self, event: WaitingEvent) -> None:
        self._ids.discard(event.packet_id)
        self._bytes -= event.size
        self._budget.used -= event.size

    def _next_id(self) -> int:
        self._last_id = self._last_id % _MAX_PACKET_ID + 1
        while self._last_id in self._ids:
            self._last_id = self._last_id % _MAX_PACKET_ID + 1
        self._ids.add(self._last_id)
        return self._last_id
