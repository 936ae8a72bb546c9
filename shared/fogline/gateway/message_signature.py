"""Signatures of messages between a gateway and a bridge behind a router, which hides certificates (docs/decisions/0062).

A signature is the application property `message_signature`. It covers the bare message (AMQP 1.0 part 3, section 3.2), which
nothing on the way may change, the names of tenant and gateway, and what kind of message it is. The header (`ttl`, `durable`) is
not covered, because routers change it. Pure.
"""

import struct
from enum import StrEnum
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from fogline.commands.command import framed
from fogline.errors import Misconfigured
from fogline.message import Message, Property, pack_id

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

SIGNATURE: Final = "message_signature"


class SignedKind(StrEnum):
    """What a message is. The signature of one kind is never valid for another one."""

    HELLO = "hello"
    BATCH = "batch"
    REPORT = "report"
    """Of a gateway: outcomes of what the bridge has sent, and statistics."""
    WELCOME = "welcome"
    """Of a bridge: the answer to hello."""
    CONTROL = "control"
    """Of a bridge: outcomes of batches, and commands with what belongs to them."""


class GatewayName(NamedTuple):
    """Whose messages these are, or who shall have them: as the certificate says and not as a message does."""

    tenant: str
    gateway: str


class MessageSigner:
    """Signs with the key of a certificate: ECDSA with SHA-256 on P-256, or Ed25519, as the key is."""

    def __init__(self, key: "EllipticCurvePrivateKey | Ed25519PrivateKey") -> None:
        self._key = key
        self._algorithm = _algorithm(key.public_key()) or ()

    @classmethod
    def of_pem(cls, pem: bytes) -> "MessageSigner":
        """Return the signer of a private key (PEM, RFC 7468). Raises `Misconfigured`."""
        try:
            key = import_module("cryptography.hazmat.primitives.serialization").load_pem_private_key(pem, None)
        except (ValueError, TypeError) as error:
            raise Misconfigured(f"no private key to sign with: {error}") from None
        if _algorithm(key.public_key()) is None:
            raise Misconfigured("messages are signed with a key on P-256, or an Ed25519 key: fogline-edge enroll makes one")
        return cls(key)

    def sign(self, kind: SignedKind, name: GatewayName, message: Message) -> Message:
        """Return the message with its signature. `name`: the gateway that sends it, or that shall have it."""
        signature = self._key.sign(signed_content(kind, name, message), *self._algorithm)
        return msgspec.structs.replace(message, properties={**message.properties, SIGNATURE: signature})


def signed_content(kind: SignedKind, name: GatewayName, message: Message) -> bytes:
    """Return the bytes that a signature covers: every field of the bare message, and every property but the signature."""
    properties = sorted((key, value) for key, value in message.properties.items() if key != SIGNATURE)
    return framed(
        b"fogline gateway message",
        kind.encode(),
        name.tenant.encode(),
        name.gateway.encode(),
        *(_encoded(getattr(message, each)) for each in _TEXTS),
        *(b"" if (value := getattr(message, each)) is None else pack_id(value).encode() for each in _IDS),
        _encoded(message.created_ms),
        b"%d" % len(properties),
        *(part for key, value in properties for part in (key.encode(), _encoded(value))),
        message.body,
    )


_TEXTS: Final = ("to", "subject", "reply_to", "content_type", "content_encoding")
_IDS: Final = ("message_id", "correlation_id")


def _encoded(value: Property) -> bytes:
    """Return a value with its type, so that 1, True, 1.0 and "1" differ."""
    match value:
        case None:
            return b"n"
        case bool():
            return b"t" if value else b"f"
        case int():
            return b"i%d" % value
        case float():
            return b"d" + struct.pack(">d", value)
        case str():
            return b"s" + value.encode()
        case _:
            return b"b" + bytes(value)


def doubt_signature(key: Any, kind: SignedKind, name: GatewayName, message: Message) -> str | None:
    """Return why a signature does not count, None if it does. `key`: the public key of a certificate that was checked."""
    signature, algorithm = message.properties.get(SIGNATURE), _algorithm(key)
    if algorithm is None:
        return "its certificate has another kind of key than P-256 or Ed25519"
    if not isinstance(signature, bytes):
        return "it is not signed"
    try:
        key.verify(signature, signed_content(kind, name, message), *algorithm)
    except import_module("cryptography.exceptions").InvalidSignature:
        return "its signature is wrong: it was changed on the way, or is not of whom it names"
    return None


def _algorithm(key: Any) -> tuple[Any, ...] | None:
    """Return the arguments of `sign` and `verify` for a public key, None for a key that is not used here."""
    elliptic = import_module("cryptography.hazmat.primitives.asymmetric.ec")
    if isinstance(key, elliptic.EllipticCurvePublicKey) and isinstance(key.curve, elliptic.SECP256R1):
        return (elliptic.ECDSA(import_module("cryptography.hazmat.primitives.hashes").SHA256()),)
    ed25519 = import_module("cryptography.hazmat.primitives.asymmetric.ed25519")
    return () if isinstance(key, ed25519.Ed25519PublicKey) else None
