"""PUBLISHes from one client, at QoS 0, 1 and 2 (5: 3.3, 3.6, 4.3): pure.

QoS 2: after PUBREC the message is durable, until PUBREL the packet id means the same message, after PUBCOMP it is durably free.
A session that outlives its connection puts its epoch into its retransmission slots: every copy is recognised whatever its DUP
flag, and no message of another session is. In a session without an epoch DUP marks the copies.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import msgspec

from fogline.errors import Poison
from fogline.events.event import Arrival
from fogline_edge.adapters.mqtt.counters import MqttCounters
from fogline_edge.adapters.mqtt.hono.intake import Client, PublishIntake
from fogline_edge.adapters.mqtt.hono.responses import is_response, read_response
from fogline_edge.adapters.mqtt.protocol.packets import Ack, Publish
from fogline_edge.adapters.mqtt.protocol.primitives import V5, PacketType, ProtocolError, Reason
from fogline_edge.adapters.mqtt.protocol.properties import NONE
from fogline_edge.adapters.mqtt.session.ack_order import AckOrder, PendingAck
from fogline_edge.adapters.mqtt.session.effects import Effect, Forget, Respond, Send, Store
from fogline_edge.adapters.mqtt.session.puback_delivery import ClientPubacks
from fogline_edge.adapters.mqtt.session.session_state import SessionState

TOPIC_ALIASES = 32
"""The Topic Alias Maximum (5: 3.2.2.3.8)."""
MAX_UNRELEASED = 2048
"""The most QoS 2 messages of one session that may wait for PUBREL."""


@dataclass(eq=False)
class Inbound:
    """PUBLISHes and PUBRELs of one connection. `receive_maximum`: as CONNACK grants it, `None` for a 3.1.1 client."""

    intake: PublishIntake
    client: Client
    state: SessionState
    ack_order: AckOrder
    counters: MqttCounters
    receive_maximum: int | None
    pubacks: ClientPubacks
    with_commands: bool
    _qos2: dict[int, PendingAck | None] = field(default_factory=dict)
    _early_releases: dict[int, PendingAck] = field(default_factory=dict)
    _aliases: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._slot = self.client.slot
        self._qos2_slot = self._slot + b"q2" + self.state.epoch

    def publish(self, publish: Publish, now: float) -> Sequence[Effect]:
        """Handle a PUBLISH received at `now`, in the loop's time. Raises `ProtocolError`."""
        if publish.properties is not NONE:
            publish = self._resolve_alias(publish, publish.properties.topic_alias)
        packet_id = publish.packet_id
        if self.receive_maximum is not None and packet_id and packet_id not in self._qos2:
            self._check_quota(self.receive_maximum)
        if publish.qos > 1:
            self.pubacks.free(packet_id)
            return self._publish_qos2(publish)
        if publish.topic[0] == "c" and self.with_commands and is_response(publish.topic):
            self.pubacks.free(packet_id)
            return (self._respond(publish, PacketType.PUBACK),)
        arrival, code = self.intake.arrival(self.client, publish, self._slot)
        pending = self.ack_order.add(packet_id, code, len(publish.payload))
        if packet_id:
            if publish.dup:
                arrival = self._with_ack_delivery(arrival, packet_id, now)
            self.pubacks.use(pending, arrival.device)
        return (Store(arrival, pending),)

    def _check_quota(self, receive_maximum: int) -> None:
        # In flight are messages at QoS 1 without their PUBACK, and at QoS 2 without their PUBCOMP (5: 4.9).
        if self.ack_order.unacknowledged - self.ack_order.qos2 + len(self._qos2) >= receive_maximum:
            raise ProtocolError(f"more than {receive_maximum} messages in flight", Reason.RECEIVE_MAXIMUM_EXCEEDED)

    def _with_ack_delivery(self, arrival: Arrival, packet_id: int, now: float) -> Arrival:
        """Add to a PUBLISH with DUP set the evidence about the PUBACK of the message that it may repeat."""
        retransmission = arrival.retransmission
        assert retransmission is not None
        delivery = self.pubacks.delivery(packet_id, arrival.device, now)
        return msgspec.structs.replace(arrival, retransmission=msgspec.structs.replace(retransmission, ack_delivery=delivery))

    def release(self, packet_id: int) -> Sequence[Effect]:
        """Handle PUBREL: PUBCOMP goes when the packet id is durably free (5: 3.6, 3.7)."""
        pending = self._qos2.get(packet_id) or self.ack_order.unreceived(packet_id)
        if pending is not None and not pending.due:  # the message may not be stored yet
            self._early_releases[packet_id] = pending
            return ()
        if packet_id not in self.state.unreleased and not self.state.restored:
            return self._complete(Reason.PACKET_IDENTIFIER_NOT_FOUND, packet_id)
        if not self.state.unreleased.get(packet_id, True):
            return self._released(packet_id)
        if packet_id in self._qos2:
            self._qos2[packet_id] = None
        return (Forget(self._qos2_slot, packet_id, partial(self._released, packet_id)),)

    def release_early(self) -> Sequence[Effect]:
        """Handle the PUBRELs that waited for PUBRECs which are now sent."""
        effects: list[Effect] = []
        for packet_id in [packet_id for packet_id, pending in self._early_releases.items() if pending.due]:
            del self._early_releases[packet_id]
            effects += self.release(packet_id)
        return effects

    def _released(self, packet_id: int) -> Sequence[Effect]:
        self.state.unreleased.pop(packet_id, None)
        self._qos2.pop(packet_id, None)
        return self._complete(Reason.SUCCESS, packet_id)

    def _complete(self, code: int, packet_id: int) -> Sequence[Effect]:
        self.counters.completed += 1
        return (Send(Ack(kind=PacketType.PUBCOMP, packet_id=packet_id, code=code).encode(self.ack_order.version)),)

    def _publish_qos2(self, publish: Publish) -> Sequence[Effect]:
        packet_id, state, ack_order = publish.packet_id, self.state, self.ack_order
        if packet_id in self._qos2:
            return self._retransmitted(None if packet_id in self._early_releases else self._qos2[packet_id], packet_id)
        if len(state.unreleased) >= MAX_UNRELEASED and packet_id not in state.unreleased:
            raise ProtocolError(f"more than {MAX_UNRELEASED} messages wait for PUBREL", Reason.QUOTA_EXCEEDED)
        if publish.topic[0] == "c" and self.with_commands and is_response(publish.topic):
            effect: Respond | Store = self._respond(publish, PacketType.PUBREC)
        else:
            effect = self._store_qos2(publish)
        if effect.pending.code >= Reason.UNSPECIFIED and ack_order.version == V5:
            return (effect,)
        self._qos2[packet_id] = effect.pending
        state.unreleased[packet_id] = isinstance(effect, Store)
        return (effect,)

    def _store_qos2(self, publish: Publish) -> Store:
        arrival, code = self.intake.arrival(self.client, publish, self._qos2_slot, again=bool(self.state.epoch))
        if code >= Reason.UNSPECIFIED and self.ack_order.version == V5:  # its PUBREC ends it: no PUBREL will free the id
            arrival, code = self.intake.arrival(self.client, publish, self._qos2_slot)
        return Store(arrival, self.ack_order.add(publish.packet_id, code, len(publish.payload), PacketType.PUBREC))

    def _retransmitted(self, pending: PendingAck | None, packet_id: int) -> Sequence[Effect]:
        """Acknowledge a copy: before PUBREL the same packet id means the same message [MQTT-4.3.3-10]."""
        if pending is None:
            raise ProtocolError(f"PUBLISH before the PUBCOMP of packet {packet_id}", Reason.PACKET_IDENTIFIER_IN_USE)
        if not pending.committed:
            return ()
        return (Send(Ack(kind=PacketType.PUBREC, packet_id=packet_id, code=pending.code).encode(self.ack_order.version)),)

    def _respond(self, publish: Publish, kind: PacketType) -> Respond | Store:
        try:
            response = read_response(self.client, self.intake.tenant, publish)
        except Poison as error:
            arrival, code = self.intake.dead(error, self.client, publish, None)
            return Store(arrival, self.ack_order.add(publish.packet_id, code, len(publish.payload), kind))
        return Respond(response, self.ack_order.add(publish.packet_id, Reason.SUCCESS, len(publish.payload), kind))

    def _resolve_alias(self, publish: Publish, alias: int | None) -> Publish:
        """Set or resolve a topic alias (5: 3.3.2.3.4): a topic defines its alias, an empty topic uses it."""
        if publish.properties.subscription_id:
            raise ProtocolError("a client's PUBLISH has no subscription identifier")
        if alias is None:
            return publish
        if alias > TOPIC_ALIASES:
            raise ProtocolError(f"topic alias {alias} is greater than {TOPIC_ALIASES}", Reason.TOPIC_ALIAS_INVALID)
        if publish.topic:
            self._aliases[alias] = publish.topic
            return publish
        topic = self._aliases.get(alias)
        if topic is None:
            raise ProtocolError(f"topic alias {alias} is not defined")
        return msgspec.structs.replace(publish, topic=topic)
