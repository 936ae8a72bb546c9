"""Peers, links, deliveries and the events of an `Engine`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from fogline.amqp.login import Login
from fogline.amqp.outcome import Condition, Outcome
from fogline.message import Property


class AmqpPeer(msgspec.Struct, frozen=True):
    """The other side of a connection, as its open frame describes it, and how it has proven its name.

    `certificate`: a verified one (DER).
    """

    container: str
    hostname: str
    properties: Mapping[str, Property]
    login: Login = Login()
    certificate: bytes | None = None


@dataclass(eq=False, slots=True)
class Link:
    """One link. `sending`: this side sends. `address`: the address of the target if this side sends, else of the source."""

    name: str
    address: str
    sending: bool
    properties: Mapping[str, Property]
    native: Any = field(repr=False)  # proton's object, for the loop's thread only, until the link is closed
    partial: bytearray = field(default_factory=bytearray, repr=False)  # bytes of an unfinished message
    credit: int = 0  # messages that the peer may still send
    closed: bool = False
    filters: Mapping[str, str] = field(default_factory=dict)  # that the peer asks for, by the name of their type


@dataclass(eq=False, slots=True)
class Delivery:
    """An unsettled message, in or out. `native`: proton's object, for the loop's thread only, until it is settled."""

    link: Link
    native: Any = field(repr=False)
    done: bool = False


class ConnectionOpened(msgspec.Struct, frozen=True):
    """The peer has opened the connection."""

    peer: AmqpPeer


class LoginRequested(msgspec.Struct, frozen=True):
    """The peer shows a user name and a password: answer it."""

    login: Login


class LinkRequested(msgspec.Struct, frozen=True):
    """The peer requests a link: accept or refuse it."""

    link: Link


class LinkClosed(msgspec.Struct, frozen=True):
    """The peer has closed a link."""

    link: Link
    condition: Condition | None


class Credit(msgspec.Struct, frozen=True):
    """The peer takes `credit` messages on a sending link. `drain`: only those that are there now."""

    link: Link
    credit: int
    drain: bool = False


class Received(msgspec.Struct, frozen=True):
    """A whole message has arrived: settle `delivery`."""

    delivery: Delivery
    data: bytes


class Settled(msgspec.Struct, frozen=True):
    """The peer has settled a message of this side."""

    delivery: Delivery
    outcome: Outcome


class Closed(msgspec.Struct, frozen=True):
    """The connection is over: the peer closed it, it failed, or its bytes ended."""

    condition: Condition | None


EngineEvent = LoginRequested | ConnectionOpened | LinkRequested | LinkClosed | Credit | Received | Settled | Closed
