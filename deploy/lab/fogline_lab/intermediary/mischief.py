"""What a hostile router does to messages, one function for each kind."""

import random
from collections import deque
from collections.abc import Callable, Sequence
from enum import StrEnum, auto
from typing import NamedTuple, Protocol

import proton
from msgspec.structs import replace

from fogline.amqp.wire import decode, encode
from fogline.message import Message, Property
from fogline_lab.intermediary.passage import Parcel


class Mischief(StrEnum):
    """What a hostile router does to one message."""

    ALTER_BODY = auto()
    """A byte of the body is another one."""
    ALTER_PROPERTY = auto()
    """An application property has another value."""
    STRIP = auto()
    """All binary application properties, signatures among them, are gone."""
    SWAP_BODIES = auto()
    """Two messages of one address have each other's bodies."""
    MISROUTE = auto()
    """A copy goes to another address of the same kind."""
    REORDER = auto()
    """It comes after the next one of its address."""
    REPLAY = auto()
    """It comes twice."""
    REPLAY_OLD = auto()
    """An old one of its address comes too, be it of an earlier connection."""
    DROP = auto()
    """It never comes, and its sender hears nothing."""
    FALSELY_ACCEPT = auto()
    """It never comes, and its sender hears `accepted`."""
    FALSELY_REJECT = auto()
    """It never comes, and its sender hears `rejected`."""
    ACCEPT_AND_PASS = auto()
    """It comes, and its sender hears `accepted` before that, whatever the receiver says."""
    IMPERSONATE = auto()
    """A copy comes too, in which another gateway is named."""


class Passed(NamedTuple):
    """A message that came to the router. `address`: its own."""

    address: str
    data: bytes


class Enemy(Protocol):
    """The hostile router, as the functions below use it. `held`: a message of each address that is kept back."""

    random: random.Random
    impostor: str
    held: dict[str, Parcel]
    passed: deque[Passed]

    def forward(self, parcel: Parcel) -> None:
        """Pass a message on."""

    def pass_on(self, parcel: Parcel) -> None:
        """Pass a message on, and after it the one that is kept back for it."""

    def inject(self, address: str, data: bytes) -> None:
        """Send a message of the router's own."""

    def answer(self, parcel: Parcel, state: object) -> None:
        """Answer a sender."""

    def addresses_like(self, address: str) -> Sequence[str]:
        """Return the other addresses of the same kind that have a receiver."""


def _change(enemy: Enemy, parcel: Parcel, change: Callable[[Message], Message]) -> None:
    parcel.data[:] = encode(change(decode(bytes(parcel.data))))
    enemy.pass_on(parcel)


def _alter_body(enemy: Enemy, parcel: Parcel) -> None:
    def altered(message: Message) -> Message:
        body = bytearray(message.body or b"x")
        body[enemy.random.randrange(len(body))] ^= 1
        return replace(message, body=bytes(body))

    _change(enemy, parcel, altered)


def _alter_property(enemy: Enemy, parcel: Parcel) -> None:
    def altered(message: Message) -> Message:
        names = [name for name, value in message.properties.items() if not isinstance(value, bytes)]
        if not names:
            return replace(message, subject=f"{message.subject or ''}x")
        name = enemy.random.choice(names)
        return replace(message, properties={**message.properties, name: _other(message.properties[name])})

    _change(enemy, parcel, altered)


def _strip(enemy: Enemy, parcel: Parcel) -> None:
    def stripped(message: Message) -> Message:
        kept = {name: value for name, value in message.properties.items() if not isinstance(value, bytes)}
        return replace(message, properties=kept)

    _change(enemy, parcel, stripped)


def _swap_bodies(enemy: Enemy, parcel: Parcel) -> None:
    if (held := enemy.held.pop(parcel.address, None)) is None:
        enemy.held[parcel.address] = parcel
        return
    first, second = decode(bytes(held.data)), decode(bytes(parcel.data))
    held.data[:] = encode(replace(first, body=second.body, content_encoding=second.content_encoding))
    parcel.data[:] = encode(replace(second, body=first.body, content_encoding=first.content_encoding))
    enemy.forward(held)
    enemy.forward(parcel)


def _misroute(enemy: Enemy, parcel: Parcel) -> None:
    if others := enemy.addresses_like(parcel.address):
        enemy.inject(enemy.random.choice(others), bytes(parcel.data))
    enemy.pass_on(parcel)


def _reorder(enemy: Enemy, parcel: Parcel) -> None:
    if (held := enemy.held.pop(parcel.address, None)) is not None:
        enemy.forward(held)
    enemy.held[parcel.address] = parcel


def _replay(enemy: Enemy, parcel: Parcel) -> None:
    enemy.pass_on(parcel)
    enemy.inject(parcel.address, bytes(parcel.data))


def _replay_old(enemy: Enemy, parcel: Parcel) -> None:
    old = [each for each in enemy.passed if each.address == parcel.address]
    enemy.pass_on(parcel)
    enemy.inject(*enemy.random.choice(old))


def _drop(enemy: Enemy, parcel: Parcel) -> None:
    """Do nothing: the sender waits."""


def _falsely_accept(enemy: Enemy, parcel: Parcel) -> None:
    enemy.answer(parcel, proton.Delivery.ACCEPTED)


def _falsely_reject(enemy: Enemy, parcel: Parcel) -> None:
    enemy.answer(parcel, proton.Delivery.REJECTED)


def _accept_and_pass(enemy: Enemy, parcel: Parcel) -> None:
    enemy.answer(parcel, proton.Delivery.ACCEPTED)
    enemy.pass_on(parcel)


def _impersonate(enemy: Enemy, parcel: Parcel) -> None:
    message = decode(bytes(parcel.data))
    forged = replace(message, properties={**message.properties, "gateway": enemy.impostor})
    enemy.pass_on(parcel)
    enemy.inject(parcel.address, encode(forged))


def _other(value: Property) -> Property:
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case str():
            return f"{value[:-1]}{'y' if value.endswith('x') else 'x'}"
        case _:
            return "x"


MISCHIEFS: dict[Mischief, Callable[[Enemy, Parcel], None]] = {
    Mischief.ALTER_BODY: _alter_body,
    Mischief.ALTER_PROPERTY: _alter_property,
    Mischief.STRIP: _strip,
    Mischief.SWAP_BODIES: _swap_bodies,
    Mischief.MISROUTE: _misroute,
    Mischief.REORDER: _reorder,
    Mischief.REPLAY: _replay,
    Mischief.REPLAY_OLD: _replay_old,
    Mischief.DROP: _drop,
    Mischief.FALSELY_ACCEPT: _falsely_accept,
    Mischief.FALSELY_REJECT: _falsely_reject,
    Mischief.ACCEPT_AND_PASS: _accept_and_pass,
    Mischief.IMPERSONATE: _impersonate,
}
