"""One client's state machine (sections 3 and 4 of MQTT): pure. Packets and the clock go in, effects come out.

What stands where the standard leaves a choice: QoS 0 and 1; no topic aliases; no subscriptions yet (each filter is
answered with a failure); a retained message is an event like any other, and is not served back; sessions survive
their connection by name only (`sessions`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from fogline.errors import Poison
from fogline.event import Arrival
from fogline_edge.adapters.mqtt.greeting import expiry_s, keep_alive_s, limits, refusal, unacceptable
from fogline_edge.adapters.mqtt.intake import Client, Intake
from fogline_edge.adapters.mqtt.packets import (
    Answer,
    Connack,
    Connect,
    Ending,
    Packet,
    Ping,
    Publish,
    Suback,
    Subscribe,
    Unsubscribe,
    Will,
    decode,
    decode_publish,
)
from fogline_edge.adapters.mqtt.sessions import MAX_EXPIRY_S, Key, Sessions
from fogline_edge.adapters.mqtt.window import Ticket, Window
from fogline_edge.adapters.mqtt.wire import V3, V5, Kind, PacketError, ProtocolError, Reason
from fogline_edge.settings import MqttSettings

_KEEP_ALIVE_GRACE = 1.5
_NOT_FOUND = Reason.PACKET_IDENTIFIER_NOT_FOUND
_UNFINISHED = {Kind.PUBREC: Kind.PUBREL, Kind.PUBREL: Kind.PUBCOMP}
"""What brings a QoS 2 exchange that is not known here (any more) to its end (5: 4.3.3)."""


class Why(StrEnum):
    """Why a connection ended."""

    LEFT = "left"
    LOST = "lost"
    MALFORMED = "malformed"
    REFUSED = "refused"
    TAKEN_OVER = "taken_over"
    TIMED_OUT = "timed_out"
    SLOW_READER = "slow_reader"
    OVER_LIMIT = "over_limit"
    SHUT_DOWN = "shut_down"


class Send(NamedTuple):
    """Write these bytes."""

    data: bytes


class Store(NamedTuple):
    """Put this, and say `committed(ticket)` when it is durable."""

    arrival: Arrival
    ticket: Ticket


class Verify(NamedTuple):
    """Check this password, take no packet meanwhile, and say `verified`."""

    name: str
    password: bytes


class Opened(NamedTuple):
    """The client is in: whoever had its session before is out. `resumed`: that session goes on."""

    key: Key
    resumed: bool


class Close(NamedTuple):
    """Write `data`, then end the connection. `detail` is for a person."""

    data: bytes
    why: Why
    detail: str


Effect = Send | Store | Verify | Opened | Close


class LastWill(NamedTuple):
    """To be put after `delay_s`, unless the session is opened again before."""

    arrival: Arrival
    delay_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Border:
    """What all sessions of a listener share. `with_users`: clients must log in."""

    settings: MqttSettings
    intake: Intake
    with_users: bool
    new_client_id: Callable[[], str]
    sessions: Sessions = field(default_factory=Sessions)


class Session:
    """One connection. Nothing raises: what cannot go on returns a `Close`, and nothing is done after it.

    `version`: the protocol level that it speaks, once it is known. `window`: say there what is committed, take there
    what is to be acknowledged.
    """

    def __init__(self, border: Border, now: float) -> None:
        self._border = border
        self._receive_maximum = border.settings.receive_maximum
        self._started = now
        self._connect: Connect | None = None
        self._client: Client | None = None
        self._slot = b""
        self._will: Will | None = None
        self._expiry_s = 0
        self._keep_alive_s = 0
        self._ended = False
        self.version = V3
        self.window = Window()

    @property
    def key(self) -> Key | None:
        """Whose session this is, once it is open."""
        return None if self._client is None else (self._client.name or "", self._client.id)

    @property
    def full(self) -> bool:
        """Whether so much waits for its commit that nothing should be read. A 5 client counts its QoS 1 messages itself."""
        waiting = self.window.quiet
        if self.version == V3:
            waiting += self.window.numbered
        return waiting >= self._receive_maximum

    def deadline(self, heard: float) -> float | None:
        """When the client's silence ends the connection, if nothing was heard after `heard`; `None`: never."""
        if self._client is None:
            return self._started + self._border.settings.connect_timeout_s
        return heard + self._keep_alive_s * _KEEP_ALIVE_GRACE if self._keep_alive_s else None

    def receive(self, header: int, body: bytes, now: float) -> Sequence[Effect]:
        """Take one packet, as the framing gave it."""
        if self._ended:
            return ()
        try:
            if self._client is not None and header >> 4 == Kind.PUBLISH:
                return (self._publish(decode_publish(header, body, self.version), self._client),)
            return self._receive(decode(header, body, self.version), now)
        except PacketError as error:
            return (self.fail(error),)

    def verified(self, *, ok: bool, now: float) -> Sequence[Effect]:
        """The answer to `Verify`."""
        assert self._connect is not None
        if self._ended:
            return ()
        if not ok:
            data = refusal(self.version, Reason.BAD_USER_NAME_OR_PASSWORD)
            return (Close(data, Why.REFUSED, "wrong user name or password"),)
        return self._accept(self._connect, now)

    def fail(self, error: PacketError) -> Close:
        """The client broke the rules, here or in the framing (5: 4.13)."""
        if error.code == Reason.UNSUPPORTED_PROTOCOL_VERSION and self._connect is None:
            return Close(refusal(V3, Reason.UNSUPPORTED_PROTOCOL_VERSION), Why.REFUSED, str(error))
        return self.dismiss(error.code, Why.MALFORMED, str(error))

    def dismiss(self, code: int, why: Why, detail: str) -> Close:
        """The connection ends from this side. Only a 5 client can be told (5: 3.14)."""
        told = self._client is not None and self.version == V5
        return Close(Ending(code=code).encode(V5) if told else b"", why, detail)

    def end(self, now: float, *, taken_over: bool = False, resumed: bool = False) -> LastWill | None:
        """The connection is over, however it came. Returns what is to be published (5: 3.1.2.5, 3.1.3.2.2).

        `taken_over`: by another connection; `resumed`: which goes on with the session.
        """
        ended, self._ended = self._ended, True
        if ended or self._client is None:
            return None
        if not taken_over:
            self._border.sessions.close(self.key or ("", ""), expiry_s=self._expiry_s, now=now)
        will, self._will = self._will, None
        if will is None:
            return None
        delay_s = min(will.properties.will_delay_s or 0, self._expiry_s)
        if taken_over and resumed and delay_s:
            return None
        message = Publish(topic=will.topic, payload=will.payload, retain=will.retain, properties=will.properties)
        arrival, _ = self._border.intake.arrival(self._client, message, self._slot)
        return LastWill(arrival, 0 if taken_over else delay_s)

    def _publish(self, publish: Publish, client: Client) -> Store:
        if publish.qos > 1:
            raise ProtocolError("QoS 2 is not taken here", Reason.QOS_NOT_SUPPORTED)
        window = self.window
        if publish.packet_id and self.version == V5 and window.numbered >= self._receive_maximum:
            raise ProtocolError(f"more than {self._receive_maximum} messages in flight", Reason.RECEIVE_MAXIMUM_EXCEEDED)
        arrival, code = self._border.intake.arrival(client, publish, self._slot)
        return Store(arrival, window.admit(publish.packet_id, code))

    def _receive(self, packet: Packet, now: float) -> Sequence[Effect]:
        if isinstance(packet, Connect):
            if self._connect is not None:
                raise ProtocolError("a second CONNECT")
            return self._greet(packet, now)
        if self._client is None:
            raise ProtocolError("the first packet is not CONNECT")
        match packet:
            case Ping(kind=Kind.PINGREQ):
                return self._send(Ping(Kind.PINGRESP))
            case Subscribe(packet_id=number, filters=filters):
                code = Reason.NOT_AUTHORIZED if self.version == V5 else Reason.UNSPECIFIED
                return self._send(Suback(kind=Kind.SUBACK, packet_id=number, codes=(code,) * len(filters)))
            case Unsubscribe(packet_id=number, filters=filters):
                codes = (Reason.NO_SUBSCRIPTION_EXISTED,) * len(filters)
                return self._send(Suback(kind=Kind.UNSUBACK, packet_id=number, codes=codes))
            case Answer(kind=kind, packet_id=number):
                reply = _UNFINISHED.get(kind)
                return () if reply is None else self._send(Answer(kind=reply, packet_id=number, code=_NOT_FOUND))
            case Ending(kind=Kind.DISCONNECT):
                return self._leave(packet)
        raise ProtocolError("this packet may not come here")

    def _greet(self, connect: Connect, now: float) -> Sequence[Effect]:
        self._connect = connect
        self.version = self.window.version = connect.version
        code = unacceptable(connect)
        if code is not None:
            return (Close(refusal(self.version, code), Why.REFUSED, f"CONNECT asks for what is not given here (0x{code:02x})"),)
        if not self._border.with_users:
            return self._accept(connect, now)
        if connect.username is None or connect.password is None:
            return (Close(refusal(self.version, Reason.NOT_AUTHORIZED), Why.REFUSED, "no user name and password"),)
        return (Verify(connect.username, connect.password),)

    def _accept(self, connect: Connect, now: float) -> Sequence[Effect]:
        border = self._border
        client_id = connect.client_id or border.new_client_id()
        try:
            username = connect.username if border.with_users else None
            self._client = border.intake.client(client_id, username, border.settings.publish_for_others)
        except Poison as error:
            return (Close(refusal(self.version, Reason.NOT_AUTHORIZED), Why.REFUSED, str(error)),)
        self._slot = self._client.slot
        self._will = connect.will
        self._keep_alive_s = keep_alive_s(connect, border.settings.max_keep_alive_s)
        self._expiry_s = expiry_s(connect)
        key = self._client.name or "", client_id
        present = border.sessions.open(key, clean=connect.clean_start, expiry_s=self._expiry_s, now=now)
        told = limits(border.settings, connect, client_id, self._keep_alive_s, self._expiry_s)
        answer = Connack(session_present=present, properties=told)
        return Opened(key, present), *self._send(answer)

    def _leave(self, packet: Ending) -> Sequence[Effect]:
        """DISCONNECT (5: 3.14.4): the will goes with it, unless the client says otherwise."""
        changed = packet.properties.session_expiry_s
        if changed is not None:
            if changed and not self._expiry_s:
                raise ProtocolError("DISCONNECT prolongs a session that was to end")
            self._expiry_s = min(changed, MAX_EXPIRY_S)
        if packet.code == Reason.SUCCESS:
            self._will = None
        return (Close(b"", Why.LEFT, "the client disconnected"),)

    def _send(self, packet: Connack | Answer | Suback | Ping) -> Sequence[Effect]:
        """A packet, unless it is larger than the client takes (5: 3.1.2.11.4)."""
        data = packet.encode(self.version)
        most = None if self._connect is None else self._connect.properties.maximum_packet_bytes
        return (Send(data),) if most is None or len(data) <= most else ()
