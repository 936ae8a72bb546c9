"""What an `Engine` deals in: peers, links, deliveries, and the events of a connection."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fogline.amqp.outcome import Condition, Outcome
from fogline.message import Property


@dataclass(frozen=True, slots=True)
class Peer:
    """Who opened the connection, by its own word."""

    container: str
    hostname: str
    properties: Mapping[str, Property]


@dataclass(eq=False, slots=True)
class Link:
    """One link. `sending`: messages go from this side to the other. `address`: the target's or the source's.

    `credit`: of a link that receives, how many messages the peer may still send.
    `native`: proton's, on the loop and until it is closed.
    """

    name: str
    address: str
    sending: bool
    properties: Mapping[str, Property]
    native: Any = field(repr=False)
    partial: bytearray = field(default_factory=bytearray, repr=False)
    credit: int = 0
    closed: bool = False


@dataclass(eq=False, slots=True)
class Delivery:
    """A message on its way, in or out. `native`: proton's, on the loop and until it is settled or its link is gone."""

    link: Link
    native: Any = field(repr=False)
    done: bool = False


@dataclass(frozen=True, slots=True)
class Opened:
    """The peer has opened the connection."""

    peer: Peer


@dataclass(frozen=True, slots=True)
class LinkRequested:
    """The peer wants a link; answer with `accept_link` or `refuse_link`."""

    link: Link


@dataclass(frozen=True, slots=True)
class LinkClosed:
    """The peer closed a link."""

    link: Link
    condition: Condition | None


@dataclass(frozen=True, slots=True)
class Credit:
    """The peer takes `credit` messages on a sending link."""

    link: Link
    credit: int


@dataclass(frozen=True, slots=True)
class Received:
    """A whole message came in; settle `delivery`."""

    delivery: Delivery
    data: bytes


@dataclass(frozen=True, slots=True)
class Settled:
    """The peer settled what was sent."""

    delivery: Delivery
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Closed:
    """The connection is over, by the peer's close, an error, or the end of the bytes."""

    condition: Condition | None


EngineEvent = Opened | LinkRequested | LinkClosed | Credit | Received | Settled | Closed
