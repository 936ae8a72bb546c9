"""The state machine of one connection (sections 3 and 4 of MQTT): pure. Packets and the clock go in, effects come out.

Subscriptions are for commands, or for events (`subscriber`). A retained message is an event like any other.
docs/proofs/mqtt.md has each statement.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from fogline.address import shown
from fogline.errors import Poison
from fogline.events.codec import Beacon
from fogline.transport.certificate_names import CertificateNames
from fogline_edge.adapters.mqtt.counters import MqttCounters
from fogline_edge.adapters.mqtt.hono.event_filters import SubscriberRights
from fogline_edge.adapters.mqtt.hono.intake import Client, ClientKey, PublishIntake
from fogline_edge.adapters.mqtt.protocol.packets import (
    Ack,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Ping,
    Subscribe,
    Unsubscribe,
    decode,
    decode_publish,
)
from fogline_edge.adapters.mqtt.protocol.primitives import V3, V5, PacketError, PacketType, ProtocolError, Reason
from fogline_edge.adapters.mqtt.session.ack_order import AckOrder
from fogline_edge.adapters.mqtt.session.connect import expiry_s, granted, keep_alive_s, refusal, unacceptable
from fogline_edge.adapters.mqtt.session.downstream import Downstream
from fogline_edge.adapters.mqtt.session.effects import ClientAccepted, Close, CloseReason, Effect, Ended, Verify
from fogline_edge.adapters.mqtt.session.inbound import Inbound
from fogline_edge.adapters.mqtt.session.outbound import ClientLimits
from fogline_edge.adapters.mqtt.session.outbound_events import FeedBudget
from fogline_edge.adapters.mqtt.session.puback_delivery import DELIVERED_AFTER_S, PubackDelivery, connection_ended
from fogline_edge.adapters.mqtt.session.session_state import SessionState
from fogline_edge.adapters.mqtt.session.sessions import MAX_EXPIRY_S, Sessions
from fogline_edge.adapters.mqtt.session.subscriber import EventDownstream, ReadOnly, SubscriberState, session_kind
from fogline_edge.adapters.mqtt.session.wills import ConnectionWill, WillBudget
from fogline_edge.adapters.sockets.certificate import certified_device
from fogline_edge.settings import MqttSettings

_KEEP_ALIVE_GRACE = 1.5
PACKET_S = 120.0
"""Time limit of one packet, from its first byte to its last: 700,000 bytes at 47 kbit/s."""
READ_AHEAD, READ_AHEAD_BYTES = 1000, 4 * 1024 * 1024
"""Limits of a connection's uncommitted messages: their number, without a `receive_maximum` in the settings, and their bytes."""
_V3_IN_FLIGHT = 100  # Receive Maximum of a 3.1.1 client, which cannot send one
_V5_IN_FLIGHT = 65_535


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolContext:
    """The values that all connections of a listener share. `now`: the clock of deadlines.

    `with_users`: a client that shows no certificate must log in by its user name and password.

    `max_body_bytes`: limit of a large body. `crowded`: as `Port.crowded`; while True, no session is accepted that would have to
    be stored.
    """

    settings: MqttSettings
    intake: PublishIntake
    with_users: bool
    new_client_id: Callable[[], str]
    now: Callable[[], Beacon]
    with_commands: bool = False
    counters: MqttCounters = field(default_factory=MqttCounters)
    sessions: Sessions = field(default_factory=Sessions)
    wills: WillBudget = field(default_factory=WillBudget)
    crowded: Callable[[], bool] = lambda: False
    puback_delivery: PubackDelivery = field(default_factory=PubackDelivery)
    subscribers: SubscriberRights = field(default_factory=lambda: SubscriberRights({}))
    feed_budget: FeedBudget = field(default_factory=FeedBudget)
    max_body_bytes: int = 0


class ClientProtocol:
    """One connection. No method raises: an error returns a `Close`, and later packets are ignored.

    `ack_order`: tell it each commit, and take the due PUBACKs from it. `inbound`, `downstream`: once the client is accepted.
    `certificate`: set it before the first packet if the client has proved its name by a certificate.
    """

    inbound: Inbound
    downstream: Downstream
    _state: SessionState
    _will: ConnectionWill
    _limits: ClientLimits

    def __init__(self, context: ProtocolContext, now: float) -> None:
        self._context = context
        self._read_ahead = context.settings.receive_maximum or READ_AHEAD
        self._started = now
        self._connect: Connect | None = None
        self._client: Client | None = None
        self.reads_events = False
        self._expiry_s = 0
        self._keep_alive_s = 0
        self._ended = False
        self.certificate: CertificateNames | None = None
        self.version = V3
        self.ack_order = AckOrder()

    @property
    def key(self) -> ClientKey | None:
        """The name of the session, or `None` before the client is accepted."""
        return None if self._client is None else self._client.key

    @property
    def full(self) -> bool:
        """True while too many messages wait for their commit to read more."""
        order = self.ack_order
        if order.size >= READ_AHEAD_BYTES:
            return True
        if order.qos0 + order.unacknowledged < self._read_ahead:
            return False
        # A 5 client with a granted Receive Maximum is read on, because its next message breaks the protocol.
        return self.version != V5 or self._context.settings.receive_maximum is None or order.qos0 > 0

    def deadline(self, last_packet_at: float, unfinished_since: float | None = None) -> float | None:
        """Return the time at which a silent connection ends, if ever. `unfinished_since`: arrival of a packet's start."""
        if self._client is None:
            return self._started + self._context.settings.connect_timeout_s
        silent = [last_packet_at + self._keep_alive_s * _KEEP_ALIVE_GRACE] if self._keep_alive_s else []
        return min(silent if unfinished_since is None else [*silent, unfinished_since + PACKET_S], default=None)

    def receive(self, header: int, body: bytes, now: float) -> Sequence[Effect]:
        """Handle one packet from the framing."""
        if self._ended:
            return ()
        try:
            if self._client is not None and header >> 4 == PacketType.PUBLISH:
                return self.inbound.publish(decode_publish(header, body, self.version), now)
            return self._receive(decode(header, body, self.version), now)
        except PacketError as error:
            return (self.fail(error),)

    def bytes_received(self, now: float, *, drained: Callable[[], bool], after_s: float = DELIVERED_AFTER_S) -> None:
        """Note that the client sent bytes: PUBACKs written `after_s` ago are delivered if the send queue is `drained`."""
        if self.ack_order.written_since(after_s, now) and drained():
            self.inbound.pubacks.delivered(self.ack_order.delivered(after_s, now))

    def verified(self, *, ok: bool | None, now: float) -> Sequence[Effect]:
        """Continue after `Verify`. `ok`: None if the password was not checked."""
        assert self._connect is not None
        if self._ended:
            return ()
        if ok is None:
            return _refused(self.version, Reason.SERVER_BUSY, f"too many others log in{_named(self._connect)}")
        if not ok:
            return _refused(
                self.version, Reason.BAD_USER_NAME_OR_PASSWORD, f"wrong user name or password{_named(self._connect)}"
            )
        return self._accept(self._connect, now)

    def fail(self, error: PacketError) -> Close:
        """End the connection because the client broke the protocol, here or in the framing (5: 4.13)."""
        if error.code == Reason.UNSUPPORTED_PROTOCOL_VERSION and self._connect is None:
            return Close(refusal(V3, Reason.UNSUPPORTED_PROTOCOL_VERSION), CloseReason.REFUSED, str(error))
        return self.disconnect(error.code, CloseReason.MALFORMED, str(error))

    def disconnect(self, code: int, reason: CloseReason, detail: str) -> Close:
        """End the connection from this side. Only a 5 client gets a DISCONNECT (5: 3.14)."""
        with_packet = self._client is not None and self.version == V5
        return Close(Disconnect(code=code).encode(V5) if with_packet else b"", reason, detail)

    def end(self, now: float, *, taken_over: bool = False, resumed: bool = False, drained: bool = False) -> Ended:
        """Handle the end of the connection, whatever its reason (5: 3.1.2.5, 3.1.3.2.2, 4.1).

        `taken_over`: another connection ended it, and has `resumed` the session. `drained`: TCP has acknowledged all bytes.
        """
        first, self._ended = not self._ended, True
        if not first or self._client is None:
            return Ended()
        connection_ended(self.ack_order.unproven, now, drained=drained)
        self._context.puback_delivery.close(self._client.key)
        effects, state = self.downstream.end(), self._state
        if self.downstream.owns:
            if self._context.sessions.close(state, now, may_resume=state.outbound.may_resume(self._limits)):
                state.owner = None
                effects += [*state.outbound.end(persistent=True), *state.save()]
            else:
                effects += state.discard()
        will = self._will.due(self._client, self._context.intake, self._expiry_s, taken_over=taken_over, resumed=resumed)
        return Ended(will, effects)

    def _receive(self, packet: Packet, now: float) -> Sequence[Effect]:
        if isinstance(packet, Connect):
            if self._connect is not None:
                raise ProtocolError("a second CONNECT")
            return self._on_connect(packet, now)
        if self._client is None:
            raise ProtocolError("the first packet is not CONNECT")
        match packet:
            case Ping(kind=PacketType.PINGREQ):
                return self._limits.send(Ping(PacketType.PINGRESP))
            case Ack(kind=kind, packet_id=packet_id):
                if kind is PacketType.PUBREL:
                    return self.inbound.release(packet_id)
                return self._state.outbound.acknowledged(kind, packet_id, packet.code)
            case Subscribe() | Unsubscribe():
                self.inbound.pubacks.free(packet.packet_id)
                downstream = self.downstream
                return downstream.subscribe(packet) if isinstance(packet, Subscribe) else downstream.unsubscribe(packet)
            case Disconnect(kind=PacketType.DISCONNECT):
                return self._on_disconnect(packet)
        raise ProtocolError("a client must not send this packet here")

    def _on_connect(self, connect: Connect, now: float) -> Sequence[Effect]:
        self._connect = connect
        self.version = self.ack_order.version = connect.version
        code = unacceptable(connect)
        if code is not None:
            return _refused(self.version, code, f"CONNECT requests an unsupported feature (0x{code:02x})")
        if self.certificate is not None or not self._context.with_users:
            return self._accept(connect, now)
        if connect.username is None or connect.password is None:
            return _refused(self.version, Reason.NOT_AUTHORIZED, f"no user name and password{_named(connect)}")
        return (Verify(connect.username, connect.password),)

    def _accept(self, connect: Connect, now: float) -> Sequence[Effect]:
        context = self._context
        client_id = connect.client_id or context.new_client_id()
        try:
            client = context.intake.client(client_id, _user(context, self.certificate, connect))
        except Poison as error:
            is_proven = self.certificate is not None or context.with_users
            code = Reason.NOT_AUTHORIZED if is_proven else Reason.CLIENT_IDENTIFIER_NOT_VALID
            return _refused(self.version, code, str(error))
        self._expiry_s = expiry_s(connect)
        kind = session_kind(context.subscribers.of(client.name), context.feed_budget, context.counters)
        self.reads_events = kind.reads_events
        if self.reads_events and connect.will is not None:
            return _refused(self.version, Reason.NOT_AUTHORIZED, f"a subscriber only reads: it has no will{_named(connect)}")
        if self._expiry_s and not self.reads_events and context.crowded():
            return _refused(self.version, Reason.SERVER_BUSY, "no room for its session")
        cost = context.wills.take(connect.will)
        if cost is None:
            return _refused(self.version, Reason.QUOTA_EXCEEDED, "no room for its will")
        self._client = client
        self._will = ConnectionWill(connect.will, cost, context.wills)
        self._keep_alive_s = keep_alive_s(connect, context.settings.max_keep_alive_s)
        self._limits = _limits(connect, context.now)
        found = context.sessions.open(
            client.key,
            clean=connect.clean_start,
            expiry_s=self._expiry_s,
            now=now,
            may_resume=lambda state: kind.fits(state) and state.outbound.may_resume(self._limits),
            make=kind.new,
        )
        over = [effect for each in found.ended for effect in each.discard()]
        context.counters.sessions_dropped += sum(each.key != client.key for each in found.ended)
        former = self._attach(client, found.state)
        most_bytes = max(context.settings.max_packet_bytes, context.max_body_bytes)
        properties = granted(context.settings, connect, client_id, self._keep_alive_s, self._expiry_s, most_bytes=most_bytes)
        connack = self._limits.send(Connack(session_present=found.present, properties=properties))
        accepted = ClientAccepted(client.key, found.present)
        return accepted, *over, *former, *found.state.save(), *connack, *self.downstream.begin()

    def _attach(self, client: Client, state: SessionState) -> Sequence[Effect]:
        context, tenant = self._context, self._context.intake.tenant
        self._state = state
        counters, with_commands, pubacks = context.counters, context.with_commands, context.puback_delivery.open(client.key)
        quota = context.settings.receive_maximum if self.version == V5 else None
        inbound = ReadOnly if self.reads_events else Inbound
        self.inbound = inbound(context.intake, client, state, self.ack_order, counters, quota, pubacks, with_commands)
        if isinstance(state, SubscriberState):
            self.downstream = EventDownstream(client, tenant, state, self._limits, counters, with_commands=False)
        else:
            self.downstream = Downstream(client, tenant, state, self._limits, counters, with_commands)
        return self.downstream.take_session()

    def _on_disconnect(self, packet: Disconnect) -> Sequence[Effect]:
        """Handle DISCONNECT (5: 3.14.4): the will is discarded unless the reason code asks for it."""
        changed_s = packet.properties.session_expiry_s
        if changed_s is not None:
            if changed_s and not self._expiry_s:
                raise ProtocolError("DISCONNECT extends a session that was to end with its connection")
            self._expiry_s = self._state.expiry_s = min(changed_s, MAX_EXPIRY_S)
        if packet.code == Reason.SUCCESS:
            self._will.discard()
        return (Close(b"", CloseReason.LEFT, "the client disconnected"),)


def _limits(connect: Connect, now: Callable[[], Beacon]) -> ClientLimits:
    requested = connect.properties
    most = (requested.receive_maximum or _V5_IN_FLIGHT) if connect.version == V5 else _V3_IN_FLIGHT
    return ClientLimits(connect.version, most, requested.maximum_packet_bytes, now)


def _user(context: ProtocolContext, certificate: CertificateNames | None, connect: Connect) -> str | None:
    """Return the name that the client has proved; None if it need not prove one. Raises `Poison`."""
    if certificate is not None:
        return certified_device(certificate, context.intake.tenant)
    return connect.username if context.with_users else None


def _named(connect: Connect) -> str:
    """Return who asked to be let in, for the log: a name that is not proven. The log's throttle leaves it out."""
    user = "" if connect.username is None else f", user {shown(connect.username)}"
    return f" (client {shown(connect.client_id)}{user})"


def _refused(version: int, code: Reason, detail: str) -> Sequence[Effect]:
    return (Close(refusal(version, code), CloseReason.REFUSED, detail),)
