"""Identifiers of commands, which only the bridges of a tenant can make. Pure.

32 hex digits: 24 name the command, 8 prove that a bridge made it; both HMAC-SHA256 (RFC 2104; docs/decisions/0017).
"""

import hmac
import secrets
from dataclasses import dataclass, field

from fogline.commands.command import framed

KEY_BYTES = 32
_NAME_DIGITS = 24
_PROOF_DIGITS = 8
ID_DIGITS = _NAME_DIGITS + _PROOF_DIGITS


@dataclass(frozen=True, slots=True)
class CommandIds:
    """Makes and checks identifiers. `key`: at least 16 bytes."""

    key: bytes = field(repr=False)

    def of_message(self, tenant: str, operator: str, reply_to: str, message_id: str) -> str:
        """Return the identifier of an operator's message: the same for every copy of it, at every bridge."""
        return self._proven(self._digits("message", tenant, operator, reply_to, message_id)[:_NAME_DIGITS])

    def new(self) -> str:
        """Return a random identifier, for a message without an id."""
        return self._proven(secrets.token_hex(_NAME_DIGITS // 2))

    def issued(self, command_id: str) -> bool:
        """Return True if a bridge with this key made the identifier."""
        return hmac.compare_digest(self._proven(command_id[:_NAME_DIGITS]).encode(), command_id.encode())

    def _proven(self, name: str) -> str:
        return name + self._digits("proof", name)[:_PROOF_DIGITS]

    def _digits(self, purpose: str, *fields: str) -> str:
        return hmac.new(self.key, framed(purpose.encode(), *(each.encode() for each in fields)), "sha256").hexdigest()
