"""Peers and their permissions. Every listener calls `Policy.may(...)` before it acts for a peer."""

from enum import StrEnum

import msgspec

from fogline.address import (
    Address,
    CommandAddress,
    CommandResponse,
    Control,
    EnrollAddress,
    HelloAddress,
    IngestAddress,
    Relay,
    Reports,
    is_identifier,
    shard_of,
    shown,
)


class PrincipalKind(StrEnum):
    """The kind of a principal."""

    GATEWAY = "gateway"
    ENROLLEE = "enrollee"
    """A gateway that enrols or renews its certificate, on a connection of its own."""
    CLIENT = "client"
    """An AMQP client that is not a gateway: an operator's program, or one that sends events of devices."""


class Principal(msgspec.Struct, frozen=True):
    """One peer.

    `proof`: evidence for its name: `certificate`, `password`, `token`, or `asserted` (its own claim, on loopback only).
    """

    kind: PrincipalKind
    tenant: str
    name: str
    proof: str

    def __str__(self) -> str:
        name = self.name if is_identifier(self.name) else shown(self.name)
        return f"{self.kind} {self.tenant}/{name} ({self.proof})"


class Action(StrEnum):
    """An action on an address."""

    SEND = "send"
    RECEIVE = "receive"


class Policy(msgspec.Struct, frozen=True):
    """The permissions of all principals. `gateways`: the known ones, `None` for any. Without credentials: for loopback only."""

    tenant: str
    shards: int
    gateways: frozenset[str] | None = None

    def knows(self, principal: Principal) -> bool:
        """Return True if the principal is known here."""
        named = principal.kind is PrincipalKind.CLIENT or self.gateways is None or principal.name in self.gateways
        return principal.tenant == self.tenant and named

    def may(self, principal: Principal, action: Action, subject: Address) -> bool:  # noqa: PLR0911 - one for each kind
        """Return True if `principal` may do `action` at `subject`. A gateway may act only for itself."""
        if not self.knows(principal) or subject.tenant != self.tenant:
            return False
        if principal.kind is PrincipalKind.CLIENT:
            return isinstance(subject, CommandAddress | Reports | Relay if action is Action.SEND else CommandResponse)
        match subject:
            case EnrollAddress(gateway=gateway):
                return principal.kind is PrincipalKind.ENROLLEE and gateway == principal.name
            case _ if principal.kind is PrincipalKind.ENROLLEE:
                return False
            case HelloAddress():
                return action is Action.SEND
            case IngestAddress(shard=shard):
                return action is Action.SEND and shard == shard_of(principal.name, self.shards)
            case Control(gateway=gateway):
                return action is Action.RECEIVE and gateway == principal.name
            case _:
                return False
