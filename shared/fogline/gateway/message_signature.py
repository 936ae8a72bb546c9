"""Signatures of a gateway's messages, for bridges behind a router that hides the gateway's certificate (docs/decisions/0061).

A signature is the application property `signature`. It covers the bare message (AMQP 1.0 part 3, section 3.2), which nothing on
the way may change, the names of tenant and gateway, and what kind of message it is. The header (`ttl`, `durable`) is not
covered, because routers change it. Pure.
"""

import hmac
import struct
from enum import StrEnum
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from fogline.commands.command import framed
from fogline.errors import Misconfigured
from fogline.message import Message, Property, pack_id

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

SIGNATURE: Final = "signature"
CHALLENGE: Final = "challenge"
"""Application property of a hello: the challenge that the bridge has made for it, so that each hello is new."""
CHALLENGE_S: Final = 30.0
"""Time for which a challenge may be answered."""


class SignedKind(StrEnum):
    """What a message is. The signature of one kind is never valid for another one."""

    HELLO = "hello"
    BATCH = "batch"


class GatewayName(NamedTuple):
    """Whose messages these are, as the certificate says and not as a message does."""

    tenant: str
    gateway: str


class GatewaySigner:
    """Signs with the key of the gateway's certificate: ECDSA with SHA-256 on P-256, or Ed25519, as the key is."""

    def __init__(self, name: GatewayName, key: "EllipticCurvePrivateKey | Ed25519PrivateKey") -> None:
        self._name, self._key = name, key

    @classmethod
    def of_pem(cls, name: GatewayName, pem: bytes) -> "GatewaySigner":
        """Return the signer of a private key (PEM, RFC 7468). Raises `Misconfigured`."""
        try:
            key = import_module("cryptography.hazmat.primitives.serialization").load_pem_private_key(pem, None)
        except (ValueError, TypeError) as error:
            raise Misconfigured(f"no private key to sign with: {error}") from None
        if _algorithm(key.public_key()) is None:
            raise Misconfigured("a gateway signs with a key on P-256, or an Ed25519 key: fogline-edge enroll makes one")
        return cls(name, key)

    def sign(self, kind: SignedKind, message: Message) -> Message:
        """Return the message with its signature."""
        content = signed_content(kind, self._name, message)
        signature = self._key.sign(content, *(_algorithm(self._key.public_key()) or ()))
        return msgspec.structs.replace(message, properties={**message.properties, SIGNATURE: signature})


class Challenges:
    """Makes the challenges of one bridge, and knows them again without keeping any, so that nobody can use them up.

    `secret`: random bytes of this bridge's process.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def make(self, name: GatewayName, now_ns: int) -> str:
        """Return a challenge for a gateway's next hello. `now_ns`: of a monotonic clock, another one for each call."""
        return f"{now_ns:x}.{self._code(name, now_ns)}"

    def made_ns(self, name: GatewayName, challenge: object) -> int | None:
        """Return when a challenge was made, None if this bridge has not made it for this gateway."""
        time_text, _, code = challenge.partition(".") if isinstance(challenge, str) and challenge.isascii() else ("", "", "")
        try:
            made_ns = int(time_text, 16)
        except ValueError:
            return None
        own = f"{made_ns:x}" == time_text and hmac.compare_digest(code, self._code(name, made_ns))
        return made_ns if own else None

    def _code(self, name: GatewayName, made_ns: int) -> str:
        content = framed(name.tenant.encode(), name.gateway.encode(), b"%d" % made_ns)
        return hmac.new(self._secret, content, "sha256").hexdigest()[:32]


class SignedSession:
    """What a bridge knows of one gateway behind a router: the epoch of its last hello, and the key.

    Of two copies of an outbox only the one that said hello last has the epoch, so their batches never interleave.
    """

    def __init__(self, name: GatewayName, challenges: Challenges) -> None:
        self.epoch = ""
        """The epoch of the hello that counts; "" before the first."""
        self._name, self._challenges = name, challenges
        self._answered_ns = 0  # when the challenge of that hello was made
        self._key: EllipticCurvePublicKey | Ed25519PublicKey | None = None

    def doubt_hello(self, message: Message, epoch: str, key: Any, now_ns: int) -> str | None:
        """Return why a hello does not count, None if it does: then its epoch and its key count from now on.

        `key`: the public key of its certificate, which the caller has checked. `epoch`: that in the hello's body.
        """
        made_ns = self._challenges.made_ns(self._name, message.properties.get(CHALLENGE))
        if made_ns is None:
            return "it does not answer a challenge of this bridge"
        if now_ns - made_ns >= CHALLENGE_S * 1e9:
            return f"it answers a challenge of more than {CHALLENGE_S:.0f} s ago"
        if made_ns <= self._answered_ns or not epoch or epoch == self.epoch:
            return "it was sent before: a later hello has come, or this one"
        if (why := _doubt(key, SignedKind.HELLO, self._name, message)) is not None:
            return why
        self.epoch, self._key, self._answered_ns = epoch, key, made_ns
        return None

    def doubt_batch(self, message: Message) -> str | None:
        """Return why a batch does not count, None if it does. A copy of a batch counts too: its sequences decide."""
        if self._key is None:
            return "no hello has come before it"
        if message.properties.get("epoch") != self.epoch:
            return "its epoch is not that of the last hello: it is of another connection, or of another copy of the outbox"
        return _doubt(self._key, SignedKind.BATCH, self._name, message)


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


def _doubt(key: Any, kind: SignedKind, name: GatewayName, message: Message) -> str | None:
    signature, algorithm = message.properties.get(SIGNATURE), _algorithm(key)
    if algorithm is None:
        return "its certificate has another kind of key than P-256 or Ed25519"
    if not isinstance(signature, bytes):
        return "it is not signed"
    try:
        key.verify(signature, signed_content(kind, name, message), *algorithm)
    except import_module("cryptography.exceptions").InvalidSignature:
        return "its signature is wrong: it was changed on the way, or is not of this gateway"
    return None


def _algorithm(key: Any) -> tuple[Any, ...] | None:
    """Return the arguments of `sign` and `verify` for a public key, None for a key that is not used here."""
    elliptic = import_module("cryptography.hazmat.primitives.asymmetric.ec")
    if isinstance(key, elliptic.EllipticCurvePublicKey) and isinstance(key.curve, elliptic.SECP256R1):
        return (elliptic.ECDSA(import_module("cryptography.hazmat.primitives.hashes").SHA256()),)
    ed25519 = import_module("cryptography.hazmat.primitives.asymmetric.ed25519")
    return () if isinstance(key, ed25519.Ed25519PublicKey) else None
