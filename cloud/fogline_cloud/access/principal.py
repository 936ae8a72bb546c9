"""One authenticated peer of a bridge."""

import hashlib
from enum import StrEnum

import msgspec

from fogline.address import is_identifier

ASSERTED = "asserted"
"""The proof of a name that nothing proves: the peer's own claim, on loopback only."""

KAFKA = "kafka"
"""The proof of the sender of `hono.command.{tenant}`: Kafka's ACLs say who may write there."""


_MAX_NAME = 80


class PrincipalKind(StrEnum):
    """The kind of a principal."""

    GATEWAY = "gateway"
    ENROLLEE = "enrollee"
    """A gateway that enrols or renews its certificate, on a connection of its own."""
    DEVICE = "device"
    """A device that is an AMQP client itself."""
    CLIENT = "client"
    """Any other AMQP client: an operator's program, or a service that sends events of devices. `access.toml` tells which."""


class Principal(msgspec.Struct, frozen=True):
    """One peer. `proof`: evidence for its name: `certificate`, `password`, `token`, or `asserted`."""

    kind: PrincipalKind
    tenant: str
    name: str
    proof: str

    def __str__(self) -> str:
        """Return a text of less than 256 characters that no other principal has: bounds and records name the peer by it."""
        return f"{self.who} ({self.proof})"

    @property
    def who(self) -> str:
        """The text without the proof: the same peer, however it has proven its name."""
        name = self.name if is_identifier(self.name) else ascii(self.name)
        if len(name) > _MAX_NAME:
            name = f"{name[:_MAX_NAME]}~{hashlib.blake2b(self.name.encode(), digest_size=8).hexdigest()}"
        return f"{self.kind} {self.tenant}/{name}"
