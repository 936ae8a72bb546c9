"""What a session is beside its connection (5: 4.1), and how it is kept across restarts of the gateway: pure."""

from collections.abc import Sequence
from math import inf

import msgspec

from fogline_edge.adapters.mqtt.effects import Effect, Keep, Key, Then
from fogline_edge.adapters.mqtt.flights import Flight, Flights, Phase
from fogline_edge.adapters.mqtt.outbound import Outbound
from fogline_edge.adapters.mqtt.subscriptions import Subscription, Subscriptions

PREFIX = "mqtt/session/"
"""Keys are this, the user (no slash is in one), a slash, and the client id."""


class Record(msgspec.Struct, array_like=True):
    """The kept value, as MessagePack. `foreign`: QoS 2 messages that wait for PUBREL, under a name that is not the client's."""

    form: int
    epoch: bytes
    expiry_s: int
    subscriptions: list[Subscription]
    foreign: dict[int, str]
    flights: dict[int, Flight]
    retired: list[int]


_FORM = 1
_decoder = msgspec.msgpack.Decoder(Record)


class State:
    """One session's state.

    `epoch`: random, names this session and no other of the same client; empty for one that ends with its connection.
    `homes`: names under which the client's messages usually stand. `received`: packet id -> device of each QoS 2 message
    that waits for its PUBREL, `""` where nothing has to be forgotten. `restored`: it was there before the gateway
    started, and so may be messages that `received` does not name. `until`: when it is over, `inf` while connected.
    `owner`: the connection that has it.
    """

    def __init__(self, key: Key, epoch: bytes, expiry_s: int) -> None:
        self.key = key
        self.epoch = epoch
        self.expiry_s = expiry_s
        self.homes: Sequence[str] = ()
        self.received: dict[int, str] = {}
        self.restored = False
        self.subscriptions = Subscriptions()
        self.outbound = Outbound(self.save)
        self.until = inf
        self.owner: object | None = None
        self._saved: bytes | None = None

    @property
    def name(self) -> str:
        """Under which it is kept."""
        return f"{PREFIX}{self.key[0]}/{self.key[1]}"

    def save(self, then: Then | None = None) -> list[Effect]:
        """Keep it as it is now, if it is to outlive its connection, and then go on."""
        if not self.epoch:
            return [] if then is None else list(then())
        value = self._encoded()
        if value == self._saved and then is None:
            return []
        self._saved = value
        return [Keep(self.name, value, then)]

    def discard(self) -> list[Effect]:
        """It is over, and with it everything that is under way."""
        self.owner = None
        effects = self.outbound.end(lasting=False)
        if self._saved is not None:
            self._saved = None
            effects.append(Keep(self.name, None))
        return effects

    def _encoded(self) -> bytes:
        foreign = {number: device for number, device in self.received.items() if device and device not in self.homes}
        flights = self.outbound.flights
        subscriptions = list(self.subscriptions.values())
        record = Record(_FORM, self.epoch, self.expiry_s, subscriptions, foreign, flights.kept(), list(flights.retired))
        return msgspec.msgpack.encode(record)


def restored(name: str, value: bytes) -> State | None:
    """A session as it was kept; `None` for what cannot be read."""
    user, slash, client_id = name.removeprefix(PREFIX).partition("/")
    try:
        record = _decoder.decode(value)
    except msgspec.MsgspecError:
        return None
    if record.form != _FORM or not slash or not record.epoch:
        return None
    state = State((user, client_id), record.epoch, record.expiry_s)
    state.restored = True
    state.received = record.foreign
    state.subscriptions.update({each.filter: each for each in record.subscriptions})
    for flight in record.flights.values():
        flight.phase = Phase.RELEASED if flight.phase >= Phase.ACCEPTED else Phase.SENT
    state.outbound = Outbound(state.save, Flights(record.flights, record.retired))
    state._saved = value  # noqa: SLF001 (its own module)
    return state
