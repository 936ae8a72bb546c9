"""Signed commands: Ed25519 (RFC 8032). Keys are raw 32 bytes, written as base64.

A command carries two signatures (docs/decisions/0019): a full one, and one that gateways of the version before verify.
"""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fogline.command import Command, fully_signed_bytes, signed_bytes
from fogline.errors import Misconfigured


@dataclass(frozen=True, slots=True)
class Signer:
    """The service's key. Without one (`Signer()`) commands stay unsigned."""

    key_id: str = ""
    key: Ed25519PrivateKey | None = None

    def sign(self, command: Command) -> Command:
        """The command with key id and signatures."""
        if self.key is None:
            return command
        named = msgspec.structs.replace(command, key_id=self.key_id)
        signature, full = self.key.sign(signed_bytes(named)), self.key.sign(fully_signed_bytes(named))
        return msgspec.structs.replace(named, signature=signature, full_signature=full)


@dataclass(frozen=True, slots=True)
class Keys:
    """Whose signature a gateway takes, by key id. Without any, nobody has to sign.

    `partial`: a command without a full signature is taken too, if the other one is right.
    """

    known: Mapping[str, Ed25519PublicKey] = field(default_factory=dict)
    partial: bool = True

    def doubt(self, command: Command) -> str | None:
        """Why this command is not to be trusted; `None` if it is."""
        if not self.known:
            return None
        key = self.known.get(command.key_id)
        if key is None:
            return f"key {ascii(command.key_id)[:80]} is not known here"
        if not (command.full_signature or self.partial):
            return "its signature does not cover `durable` and `correlation` (commands.partial_signatures = false)"
        try:
            if command.full_signature:
                key.verify(command.full_signature, fully_signed_bytes(command))
            else:
                key.verify(command.signature, signed_bytes(command))
        except InvalidSignature:
            return f"the signature with key {command.key_id} is not right"
        return None


def read_signer(key_id: str, text: str, where: str) -> Signer:
    """A private key from base64. Raises `Misconfigured` naming `where`."""
    return Signer(key_id, Ed25519PrivateKey.from_private_bytes(_raw(text, where)))


def read_keys(texts: Mapping[str, str], where: str, *, partial: bool = True) -> Keys:
    """Public keys by key id, from base64. Raises `Misconfigured` naming `where` and the key id."""
    known = {name: Ed25519PublicKey.from_public_bytes(_raw(text, f"{where}.{name}")) for name, text in texts.items()}
    return Keys(known, partial)


def make_key() -> tuple[str, str]:
    """A new private key and its public key, both as base64."""
    key = Ed25519PrivateKey.generate()
    return base64.b64encode(key.private_bytes_raw()).decode(), base64.b64encode(key.public_key().public_bytes_raw()).decode()


def _raw(text: str, where: str) -> bytes:
    try:
        raw = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != 32:
        raise Misconfigured(f"{where}: a key is 32 bytes in base64 (fogline command key makes a pair)")
    return raw
