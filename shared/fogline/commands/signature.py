"""Signatures of commands: Ed25519 (RFC 8032; docs/decisions/0019). A key is 32 raw bytes, in base64."""

import base64
import binascii
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

import msgspec

from fogline.commands.cancel import CancelRequest, signed_cancel
from fogline.commands.command import Command, signed_bytes
from fogline.errors import Misconfigured

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey


class Signer(msgspec.Struct, frozen=True):
    """Signs commands with the bridge's key. Without a key (`Signer()`), commands stay unsigned."""

    key_id: str = ""
    key: "Ed25519PrivateKey | None" = None

    def sign(self, command: Command) -> Command:
        """Return the command with key id and signature."""
        if self.key is None:
            return command
        named = msgspec.structs.replace(command, key_id=self.key_id)
        return msgspec.structs.replace(named, signature=self.key.sign(signed_bytes(named)))

    def sign_cancel(self, request: CancelRequest) -> CancelRequest:
        """Return the request with key id and signature."""
        if self.key is None:
            return request
        named = msgspec.structs.replace(request, key_id=self.key_id)
        return msgspec.structs.replace(named, signature=self.key.sign(signed_cancel(named)))

    def sign_bytes(self, content: bytes) -> bytes:
        """Return the signature of what is no command; without a key, nothing."""
        return self.key.sign(content) if self.key is not None else b""


class TrustedKeys(msgspec.Struct, frozen=True):
    """The keys whose signatures a gateway accepts, by key id; without any, none is needed."""

    known: "Mapping[str, Ed25519PublicKey]" = msgspec.field(default_factory=dict)

    def doubt(self, command: Command) -> str | None:
        """Return the reason why a command cannot be trusted; `None` if it can."""
        return self._doubt(command.key_id, command.signature, signed_bytes(command))

    def doubt_cancel(self, request: CancelRequest) -> str | None:
        """Return the reason why a request to cancel cannot be trusted; `None` if it can."""
        return self._doubt(request.key_id, request.signature, signed_cancel(request))

    def doubt_bytes(self, key_id: str, signature: bytes, content: bytes) -> str | None:
        """Return the reason why what is no command cannot be trusted; `None` if it can."""
        return self._doubt(key_id, signature, content)

    def _doubt(self, key_id: str, signature: bytes, signed: bytes) -> str | None:
        if not self.known:
            return None
        key = self.known.get(key_id)
        if key is None:
            return f"key {ascii(key_id)[:80]} is not known here"
        try:
            key.verify(signature, signed)
        except import_module("cryptography.exceptions").InvalidSignature:
            return f"the signature with key {key_id} is wrong"
        return None


def read_signer(key_id: str, text: str, where: str) -> Signer:
    """Return the signer of a private key in base64. Raises `Misconfigured`, whose text names `where`."""
    return Signer(key_id, _ed25519().Ed25519PrivateKey.from_private_bytes(_raw(text, where)))


def read_keys(texts: Mapping[str, str], where: str) -> TrustedKeys:
    """Return the trusted keys of public keys in base64. Raises `Misconfigured`, whose text names `where` and the key id."""
    known = {name: _ed25519().Ed25519PublicKey.from_public_bytes(_raw(text, f"{where}.{name}")) for name, text in texts.items()}
    return TrustedKeys(known)


def make_key() -> tuple[str, str]:
    """Return a new private key and its public key, both in base64."""
    key = _ed25519().Ed25519PrivateKey.generate()
    return base64.b64encode(key.private_bytes_raw()).decode(), base64.b64encode(key.public_key().public_bytes_raw()).decode()


def _ed25519() -> Any:
    """Import the library when there is a key: it takes 6 MB, which a gateway without keys does not need."""
    return import_module("cryptography.hazmat.primitives.asymmetric.ed25519")


def _raw(text: str, where: str) -> bytes:
    try:
        raw = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != 32:
        raise Misconfigured(f"{where}: expected a key of 32 bytes in base64. `fogline command key` makes a pair of keys")
    return raw
