"""Interface of a foreign AMQP 1.0 client in any language, for the contract tests."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

CLIENT_LIMIT_S = 90.0
"""For one call; the clients' own limits are shorter, and say more."""

Id = tuple[str, str]
"""A correlation id: its AMQP type (`string`, `ulong`, `uuid`, `binary`) and its value as text, a binary one in hex."""


@dataclass(frozen=True)
class Sent:
    """Outcome of a message at a client; for a link that was closed, `state` is `ended`."""

    state: str
    condition: str = ""
    description: str = ""


@dataclass(frozen=True)
class Reply:
    """The answer to a command."""

    correlation: Id
    status: int
    state: str
    device: str
    body: str


@dataclass(frozen=True)
class Note:
    """A message without an answer. `body`: its sections, each a Data section where the client can."""

    body: str | Sequence[str]
    to: str | None = None
    subject: str | None = None
    content_type: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


class ForeignClient(Protocol):
    """One connection for each call, to the bridge at `port`."""

    async def commands(
        self, device: str, ids: Sequence[Id], *, durable: bool = False
    ) -> tuple[Sequence[Sent], Sequence[Reply]]:
        """Commands to one device, each with a correlation id; the answers to those that were accepted."""

    async def send(self, target: str | None, *notes: Note) -> Sequence[Sent]:
        """Messages over one link; without a `target` by the anonymous relay, each to its own `to`."""

    async def refused(self, *, senders: Sequence[str] = (), receivers: Sequence[str] = ()) -> Sequence[Sent]:
        """Links that the bridge does not want, and what it says of each."""

    async def events(self, address: str, count: int, selector: str | None = None) -> Sequence[tuple[str, str]]:
        """Device and body of the next events at an address."""

    async def oversize(self, target: str, size_bytes: int) -> tuple[Sent, Sent]:
        """A message that is too big, then a small one on another link that was there before."""
