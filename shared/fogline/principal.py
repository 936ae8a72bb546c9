"""Who is on the other side, and what they may do. Every border asks `Policy.may(...)` before it acts."""

from dataclasses import dataclass, field
from enum import StrEnum

from fogline.address import (
    Address,
    CommandResponse,
    Commands,
    Control,
    Hello,
    Ingest,
    Relay,
    Reports,
    is_identifier,
    shard_of,
    shown,
)


class Kind(StrEnum):
    """What sort of party a principal is."""

    GATEWAY = "gateway"
    DEVICE = "device"
    CLIENT = "client"
    """An AMQP client that is no gateway: an operator's program, or one that brings events of devices."""


@dataclass(frozen=True, slots=True)
class Principal:
    """One authenticated (or, on loopback without credentials, asserted) party.

    `proof` says how the name was proved: `asserted` (nothing but the peer's word) or `password`.
    """

    kind: Kind
    tenant: str
    name: str
    proof: str

    def __str__(self) -> str:
        name = self.name if is_identifier(self.name) else shown(self.name)
        return f"{self.kind} {self.tenant}/{name} ({self.proof})"


class Action(StrEnum):
    """What a principal asks to do with an address."""

    SEND = "send"
    RECEIVE = "receive"


@dataclass(frozen=True, slots=True)
class Policy:
    """Who exists, and what each may do.

    `gateways=None`: any gateway of `tenant`. Clients need no name of ours as long as nothing proves one: both are only
    sensible on loopback.
    """

    tenant: str
    shards: int
    gateways: frozenset[str] | None = field(default=None)

    def knows(self, principal: Principal) -> bool:
        """Whether this party exists here at all."""
        named = principal.kind is not Kind.GATEWAY or self.gateways is None or principal.name in self.gateways
        return principal.tenant == self.tenant and named

    def may(self, principal: Principal, action: Action, subject: Address) -> bool:
        """Whether `principal` may do `action` at `subject`: a gateway speaks for itself and nobody else."""
        if not self.knows(principal) or subject.tenant != self.tenant:
            return False
        match principal.kind:
            case Kind.GATEWAY:
                return self._gateway_may(principal, action, subject)
            case Kind.CLIENT:
                sends = isinstance(subject, Commands | Reports | Relay)
                return sends if action is Action.SEND else isinstance(subject, CommandResponse)
            case Kind.DEVICE:
                return False

    def _gateway_may(self, principal: Principal, action: Action, subject: Address) -> bool:
        match subject:
            case Hello():
                return action is Action.SEND
            case Ingest(shard=shard):
                return action is Action.SEND and shard == shard_of(principal.name, self.shards)
            case Control(gateway=gateway):
                return action is Action.RECEIVE and gateway == principal.name
            case _:
                return False
