"""One client's state machine (sections 3 and 4 of MQTT): pure. Packets and the clock go in, effects come out.

What stands where the standard leaves a choice: a retained message is an event like any other, and is not served back;
subscriptions are for commands only. `docs/mqtt.md` has it statement by statement.
"""

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from fogline.codec import Beacon
from fogline.errors import Poison
from fogline_edge.adapters.mqtt.acknowledgements import DELIVERED_AFTER_S, Acknowledgements, ended
from fogline_edge.adapters.mqtt.counters import Counters
from fogline_edge.adapters.mqtt.downstream import Downstream
from fogline_edge.adapters.mqtt.effects import Close, Effect, Ended, Key, LastWill, Opened, Send, Verify, Why
from fogline_edge.adapters.mqtt.greeting import expiry_s, keep_alive_s, limits, refusal, unacceptable
from fogline_edge.adapters.mqtt.inbound import Inbound
from fogline_edge.adapters.mqtt.intake import Client, Intake, own_device
from fogline_edge.adapters.mqtt.kept import State
from fogline_edge.adapters.mqtt.outbound import Pipe
from fogline_edge.adapters.mqtt.packets import (
    Answer,
    Connack,
    Connect,
    Ending,
    Packet,
    Ping,
    Publish,
    Subscribe,
    Unsubscribe,
    Will,
    decode,
    decode_publish,
)
from fogline_edge.adapters.mqtt.sessions import MAX_EXPIRY_S, Sessions
from fogline_edge.adapters.mqtt.will_budget import WillBudget
from fogline_edge.adapters.mqtt.window import Window
from fogline_edge.adapters.mqtt.wire import V3, V5, Kind, PacketError, ProtocolError, Reason
from fogline_edge.settings import MqttSettings

_KEEP_ALIVE_GRACE = 1.5
PACKET_S = 120.0
"""How long a packet may take from its first byte to its last: 700,000 bytes at 47 kbit/s."""
READ_AHEAD = 100
"""How many messages of a connection wait for their commit before it is not read, unless the settings have a receive maximum."""
_V3_IN_FLIGHT = 100
"""How many commands at QoS 1 and 2 a 3.1.1 client, which cannot say, is sent at once."""
_V5_IN_FLIGHT = 65_535


def _new_epoch() -> bytes:
    return secrets.token_bytes(8)


def _no_clock() -> Beacon:
    return Beacon("", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Border:
    """What all sessions of a listener share.

    `with_users`: clients must log in. `with_commands`: devices may subscribe to commands. `now`: the clock of deadlines.
    `crowded`: as `Port.crowded`; then no session is taken that would have to be kept.
    """

    settings: MqttSettings
    intake: Intake
    with_users: bool
    new_client_id: Callable[[], str]
    with_commands: bool = False
    now: Callable[[], Beacon] = _no_clock
    counters: Counters = field(default_factory=Counters)
    sessions: Sessions = field(default_factory=lambda: Sessions(_new_epoch))
    wills: WillBudget = field(default_factory=WillBudget)
    crowded: Callable[[], bool] = lambda: False
    acknowledgements: Acknowledgements = field(default_factory=Acknowledgements)


class Session:
    """One connection. Nothing raises: what cannot go on returns a `Close`, and nothing is done after it.

    `version`: the protocol level that it speaks, once it is known. `window`: say there what is committed, take there
    what is to be acknowledged. `inbound` and `downstream`: what comes from the client and what goes to it, once it is in.
    """

    inbound: Inbound
    downstream: Downstream
    _state: State

    def __init__(self, border: Border, now: float) -> None:
        self._border = border
        self._read_ahead = border.settings.receive_maximum or READ_AHEAD
        self._started = now
        self._connect: Connect | None = None
        self._client: Client | None = None
        self._will: Will | None = None
        self._will_cost = 0
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
        """Whether so much waits for its commit that nothing should be read.

        A 5 client that was given a receive maximum, and has as many in flight, is read on: the next one is one too many.
        """
        window = self.window
        if window.quiet + window.numbered < self._read_ahead:
            return False
        given = self.version == V5 and self._border.settings.receive_maximum is not None
        return not given or window.quiet > 0

    def deadline(self, heard: float, unfinished_since: float | None = None) -> float | None:
        """When the connection ends because the client is silent; `None`: never.

        `heard`: when its last whole packet came. `unfinished_since`: when the first bytes came of one that is not whole.
        """
        if self._client is None:
            return self._started + self._border.settings.connect_timeout_s
        silent = [heard + self._keep_alive_s * _KEEP_ALIVE_GRACE] if self._keep_alive_s else []
        unfinished = [unfinished_since + PACKET_S] if unfinished_since is not None else []
        return min(silent + unfinished, default=None)

    def receive(self, header: int, body: bytes, now: float) -> Sequence[Effect]:
        """Take one packet, as the framing gave it."""
        if self._ended:
            return ()
        try:
            if self._client is not None and header >> 4 == Kind.PUBLISH:
                return self.inbound.publish(decode_publish(header, body, self.version), now)
            return self._receive(decode(header, body, self.version), now)
        except PacketError as error:
            return (self.fail(error),)

    def heard(self, now: float, *, drained: Callable[[], bool], after_s: float = DELIVERED_AFTER_S) -> None:
        """The client sent something; if the send queue is empty (`drained`), it has the PUBACKs that were written before.

        `after_s`: how long before.
        """
        if self.window.written_since(after_s, now) and drained():
            self.inbound.acks.delivered(self.window.delivered(after_s, now))

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

    def end(self, now: float, *, taken_over: bool = False, resumed: bool = False, drained: bool = False) -> Ended:
        """The connection is over, however it came (5: 3.1.2.5, 3.1.3.2.2, 4.1).

        `taken_over`: by another connection; `resumed`: which goes on with the session. `drained`: the client's TCP has all
        that was sent to it.
        """
        over, self._ended = self._ended, True
        if over or self.key is None or self._client is None:
            return Ended()
        ended(self.window.unproven, now, drained=drained)
        self._border.acknowledgements.close(self.key)
        effects, state = self.downstream.end(), self._state
        if self.downstream.owns:
            if self._border.sessions.close(state, now):
                state.owner = None
                effects += [*state.outbound.end(lasting=True), *state.save()]
            else:
                effects += state.discard()
        return Ended(self._last_will(self._client, taken_over=taken_over, resumed=resumed), effects)

    def _last_will(self, client: Client, *, taken_over: bool, resumed: bool) -> LastWill | None:
        will = self._will
        if will is None:
            return None
        delay_s = min(will.properties.will_delay_s or 0, self._expiry_s)
        if taken_over and resumed and delay_s:
            self._discard_will()
            return None
        self._will = None
        message = Publish(topic=will.topic, payload=will.payload, retain=will.retain, properties=will.properties)
        arrival, _ = self._border.intake.arrival(client, message, b"")
        return LastWill(arrival, 0 if taken_over else delay_s, self._will_cost)

    def _discard_will(self) -> None:
        if self._will is not None:
            self._will = None
            self._border.wills.give_back(self._will_cost)

    def _receive(self, packet: Packet, now: float) -> Sequence[Effect]:
        if isinstance(packet, Connect):
            if self._connect is not None:
                raise ProtocolError("a second CONNECT")
            return self._greet(packet, now)
        if self._client is None:
            raise ProtocolError("the first packet is not CONNECT")
        match packet:
            case Ping(kind=Kind.PINGREQ):
                return _fitting(Ping(Kind.PINGRESP), self._connect, self.version)
            case Answer(kind=kind, packet_id=number):
                return self.inbound.release(number) if kind is Kind.PUBREL else self.downstream.confirmed(packet)
            case Subscribe():
                self.inbound.acks.free(packet.packet_id)
                return self.downstream.subscribe(packet)
            case Unsubscribe():
                self.inbound.acks.free(packet.packet_id)
                return self.downstream.unsubscribe(packet)
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
        self._expiry_s = expiry_s(connect)
        busy = Reason.SERVER_BUSY if self._expiry_s and border.crowded() else None
        cost = border.wills.take(connect.will) if busy is None else None
        if cost is None:
            self._client = None
            return (
                Close(refusal(self.version, busy or Reason.QUOTA_EXCEEDED), Why.REFUSED, "no room for its session or will"),
            )
        self._will, self._will_cost = connect.will, cost
        self._keep_alive_s = keep_alive_s(connect, border.settings.max_keep_alive_s)
        key = self._client.name or "", client_id
        found = border.sessions.open(key, clean=connect.clean_start, expiry_s=self._expiry_s, now=now)
        over = [effect for each in found.gone for effect in each.discard()]
        border.counters.sessions_dropped += sum(each.key != key for each in found.gone)
        former = self._attach(self._client, found.state, connect)
        told = limits(border.settings, connect, client_id, self._keep_alive_s, self._expiry_s)
        answer = Connack(session_present=found.present, properties=told)
        opened = Opened(key, found.present)
        return opened, *over, *former, *found.state.save(), *_fitting(answer, connect, self.version), *self.downstream.begin()

    def _attach(self, client: Client, state: State, connect: Connect) -> Sequence[Effect]:
        """Take the session, and make both directions of the connection."""
        border, asked = self._border, connect.properties
        tenant = border.intake.tenant
        state.homes = (*own_device(client), border.intake.gateway)
        most = (asked.receive_maximum or _V5_IN_FLIGHT) if self.version == V5 else _V3_IN_FLIGHT
        pipe = Pipe(self.version, most, asked.maximum_packet_bytes, border.now)
        self._state = state
        self.inbound = Inbound(
            border.intake,
            client,
            state,
            self.window,
            border.counters,
            receive_maximum=border.settings.receive_maximum,
            acks=border.acknowledgements.open((client.name or "", client.id)),
            with_commands=border.with_commands,
        )
        self.downstream = Downstream(client, tenant, state, pipe, border.counters, with_commands=border.with_commands)
        return self.downstream.take()

    def _leave(self, packet: Ending) -> Sequence[Effect]:
        """DISCONNECT (5: 3.14.4): the will goes with it, unless the client says otherwise."""
        changed = packet.properties.session_expiry_s
        if changed is not None:
            if changed and not self._expiry_s:
                raise ProtocolError("DISCONNECT prolongs a session that was to end")
            self._expiry_s = self._state.expiry_s = min(changed, MAX_EXPIRY_S)
        if packet.code == Reason.SUCCESS:
            self._discard_will()
        return (Close(b"", Why.LEFT, "the client disconnected"),)


def _fitting(packet: Connack | Ping, connect: Connect | None, version: int) -> Sequence[Effect]:
    """A packet, unless it is larger than the client takes [MQTT-3.1.2-24]."""
    data = packet.encode(version)
    most = None if connect is None else connect.properties.maximum_packet_bytes
    return (Send(data),) if most is None or len(data) <= most else ()
