"""What comes of a packet, a commit or a command: the words in which the pure side asks the other for IO."""

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import NamedTuple

from fogline.command import Answer
from fogline.event import Arrival
from fogline_edge.adapters.mqtt.window import Ticket

Key = tuple[str, str]
"""User name (or nothing) and client id: nobody can take over another user's session."""


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


class Fate(StrEnum):
    """What became of a command, as `Commands` has it; each is the name of the counter too."""

    TAKEN = "taken"
    NOT_SENT = "not_sent"
    LOST = "lost"
    REFUSED = "refused"


class Send(NamedTuple):
    """Write these bytes."""

    data: bytes


class Store(NamedTuple):
    """Put this, and say `committed(ticket)` when it is durable."""

    arrival: Arrival
    ticket: Ticket


class Respond(NamedTuple):
    """A device answers a command: say `committed(ticket)` when it is durable."""

    device: str
    command_id: str
    answer: Answer
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


class Forget(NamedTuple):
    """Durably forget a slot of these devices, then go on with `then` (if the connection is still there)."""

    devices: tuple[str, ...]
    slot: bytes
    number: int
    then: "Then"


class Keep(NamedTuple):
    """Durably keep a value (`None`: no longer), then go on with `then` (if the connection is still there)."""

    key: str
    value: bytes | None
    then: "Then | None" = None


class Tell(NamedTuple):
    """Say what became of a command. `detail` is for a person."""

    fate: Fate
    command_id: str
    detail: str = ""


class Reach(NamedTuple):
    """The client takes commands for `device` from now on, or (not `on`) no more."""

    device: str
    on: bool


Effect = Send | Store | Respond | Verify | Opened | Close | Forget | Keep | Tell | Reach
Then = Callable[[], Sequence[Effect]]


class LastWill(NamedTuple):
    """To be put after `delay_s`, unless the session is opened again before. `cost`: what it takes of the `WillBudget`."""

    arrival: Arrival
    delay_s: float
    cost: int = 0


class Ended(NamedTuple):
    """What is due when a connection is over: its will, and what becomes of its session."""

    will: LastWill | None = None
    effects: Sequence[Effect] = ()
