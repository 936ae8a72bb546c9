"""The Session State of a client (5: 4.1), and its stored form, which survives a restart of the gateway: pure."""

from math import inf

import msgspec

from fogline_edge.adapters.mqtt.hono.intake import ClientKey
from fogline_edge.adapters.mqtt.hono.subscriptions import Subscription, Subscriptions
from fogline_edge.adapters.mqtt.session.effects import Continuation, Effect, Keep
from fogline_edge.adapters.mqtt.session.inflight import DeliveryPhase, InflightCommand, InflightCommands
from fogline_edge.adapters.mqtt.session.outbound import OutboundCommands

PREFIX = "mqtt/session/"
"""A session's key is this prefix, the user (which contains no slash), a slash, and the Client Identifier."""


class SessionRecord(msgspec.Struct, array_like=True):
    """The stored form, as MessagePack."""

    form: int
    epoch: bytes
    expiry_s: int
    subscriptions: list[Subscription]
    inflight: dict[int, InflightCommand]


_FORM = 1
_decoder = msgspec.msgpack.Decoder(SessionRecord)


class SessionState:
    """The state of one session. `epoch`: random name among all sessions of its client; empty if it ends with its connection.

    `unreleased`: the packet ids of QoS 2 messages that wait for PUBREL, and whether the outbox remembers the message.
    `restored`: the session is older than this run of the gateway, so `unreleased` may lack messages. `expires_at`: in the
    loop's time, `inf` while connected.
    """

    def __init__(self, key: ClientKey, epoch: bytes, expiry_s: int) -> None:
        self.key = key
        self.epoch = epoch
        self.expiry_s = expiry_s
        self.unreleased: dict[int, bool] = {}
        self.restored = False
        self.subscriptions = Subscriptions()
        self.outbound = OutboundCommands(self.save)
        self.expires_at = inf
        self.owner: object | None = None
        self._saved: bytes | None = None

    @property
    def name(self) -> str:
        """The key of the stored session."""
        return f"{PREFIX}{self.key[0]}/{self.key[1]}"

    def save(self, then: Continuation | None = None) -> list[Effect]:
        """Store the session if it outlives its connection, then continue with `then`."""
        if not self.epoch:
            return [] if then is None else list(then())
        value = self._encoded()
        if value == self._saved and then is None:
            return []
        self._saved = value
        return [Keep(self.name, value, then)]

    def discard(self) -> list[Effect]:
        """End the session, its commands in flight, and its stored form."""
        self.owner = None
        effects = self.outbound.end(persistent=False)
        if self._saved is not None:
            self._saved = None
            effects.append(Keep(self.name, None))
        return effects

    def _encoded(self) -> bytes:
        inflight = self.outbound.inflight
        subscriptions = list(self.subscriptions.values())
        return msgspec.msgpack.encode(SessionRecord(_FORM, self.epoch, self.expiry_s, subscriptions, inflight.kept()))


def carries_commands(value: bytes) -> bool:
    """Return True if a stored session has commands in flight, or is unreadable."""
    try:
        return bool(_decoder.decode(value).inflight)
    except msgspec.MsgspecError:
        return True


def restored(name: str, value: bytes) -> SessionState | None:
    """Return a stored session, or `None` for an unreadable record."""
    user, slash, client_id = name.removeprefix(PREFIX).partition("/")
    try:
        record = _decoder.decode(value)
    except msgspec.MsgspecError:
        return None
    if record.form != _FORM or not slash or not record.epoch:
        return None
    state = SessionState((user, client_id), record.epoch, record.expiry_s)
    state.restored = True
    state.subscriptions.update({each.filter: each for each in record.subscriptions})
    for command in record.inflight.values():
        command.phase = DeliveryPhase.RELEASED if command.phase >= DeliveryPhase.ACCEPTED else DeliveryPhase.SENT
    state.outbound = OutboundCommands(state.save, InflightCommands(record.inflight))
    state._saved = value  # noqa: SLF001 (its own module)
    return state
