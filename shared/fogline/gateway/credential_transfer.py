"""Credentials of devices on their way from a bridge to a gateway (docs/decisions/0065). No IO.

They are sealed for one connection: hello has a new public key of the gateway (X25519), and the bridge makes one too. HKDF with
SHA-256 of what both agree on gives a key for AES-256-GCM. So a router or a broker reads nothing, and a recorded message opens
nothing later. `commands.signing_key` signs each message, if there is one, as it signs commands. Messages are numbered from 1.

A bridge first offers the digest of all that the gateway should have. The gateway accepts the offer if it has that, and
releases it if not. Then the bridge sends everything in parts, and after that what changes.
"""

import base64
import binascii
from importlib import import_module
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from fogline.commands.command import framed
from fogline.commands.signature import Signer, TrustedKeys
from fogline.documents.json_document import read_document
from fogline.errors import Poison
from fogline.events.codec import Identifier
from fogline.gateway.device_credentials import DeviceCredentials
from fogline.gateway.message_signature import GatewayName
from fogline.message import Message, Property

MAX_PART: Final = 100
"""Devices in one message."""
_KIND: Final = "credentials"
_PUBLIC_BYTES: Final = 32


class CredentialUpdate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The content of a message. `offer`: the digest of everything (`set_digest`), alone in its message.

    `devices`: their new credentials; `gone`: devices that the gateway keeps no credentials of. `whole`: a part of everything;
    with `more`, another part follows, and nothing counts before the last one.
    """

    offer: Annotated[str, Meta(max_length=64)] = ""
    devices: Annotated[list[DeviceCredentials], Meta(max_length=MAX_PART)] = []
    gone: Annotated[list[Identifier], Meta(max_length=MAX_PART)] = []
    whole: bool = False
    more: bool = False


def is_credentials(message: Message) -> bool:
    """Return True if a message on a control address has credentials."""
    return message.properties.get("fogline") == _KIND


class CredentialSealer:
    """Seals messages for one connection of a gateway. `gateway_key`: the public key of its hello. Raises `Poison`."""

    def __init__(self, name: GatewayName, gateway_key: str, signer: Signer) -> None:
        private = _x25519().X25519PrivateKey.generate()
        self._name, self._signer, self._number = name, signer, 0
        self._public: bytes = private.public_key().public_bytes_raw()
        self._gateway_public = _public_of(gateway_key)
        self._cipher = _cipher(private, self._gateway_public, name, self._gateway_public + self._public)

    def seal(self, update: CredentialUpdate) -> Message:
        """Return the next message for `control/{tenant}/{gateway}`."""
        self._number += 1
        place = _place(self._name, self._gateway_public, self._public, self._number)
        body: bytes = self._cipher.encrypt(_nonce(self._number), msgspec.json.encode(update), place)
        signature = self._signer.sign_bytes(place + body)
        properties: dict[str, Property] = {
            "fogline": _KIND,
            "number": self._number,
            "key": self._public,
            "key_id": self._signer.key_id,
        }
        return Message(body=body, properties={**properties, "signature": signature})


class CredentialOpener:
    """Opens the messages of one connection, in their order. `public_key` is for hello."""

    def __init__(self, name: GatewayName, keys: TrustedKeys) -> None:
        self._name, self._keys, self._number = name, keys, 0
        self._private = _x25519().X25519PrivateKey.generate()
        self._own: bytes = self._private.public_key().public_bytes_raw()
        self._bridge = b""
        self._cipher: Any = None

    @property
    def public_key(self) -> str:
        """The public key of this connection, in base64."""
        return base64.b64encode(self._own).decode()

    def open(self, message: Message) -> CredentialUpdate:
        """Return the content. Raises `Poison` if it is not for this connection, changed, not signed, or not the next one."""
        found = message.properties
        number, key, signature = found.get("number"), found.get("key"), found.get("signature")
        if number != self._number + 1 or not isinstance(key, bytes) or len(key) != _PUBLIC_BYTES:
            raise Poison("sealed", f"a message with credentials is not number {self._number + 1} of this connection")
        place = _place(self._name, self._own, key, self._number + 1)
        signed = signature if isinstance(signature, bytes) else b""
        if (why := self._keys.doubt_bytes(str(found.get("key_id", "")), signed, place + message.body)) is not None:
            raise Poison("not-authorised", f"a message with credentials is not trusted: {why}")
        if self._cipher is None or self._bridge != key:
            self._cipher = _cipher(self._private, key, self._name, self._own + key)
            self._bridge = key
        try:
            text: bytes = self._cipher.decrypt(_nonce(self._number + 1), message.body, place)
        except import_module("cryptography.exceptions").InvalidTag:
            raise Poison("sealed", "a message with credentials was changed on the way, or is for another connection") from None
        self._number += 1
        return read_document(text, CredentialUpdate, "a message with credentials")


def _cipher(private: Any, public: bytes, name: GatewayName, salt: bytes) -> Any:
    try:
        shared = private.exchange(_x25519().X25519PublicKey.from_public_bytes(public))
    except ValueError:
        raise Poison("sealed", "the public key for credentials is not one") from None
    hashes, hkdf = _hazmat("hashes"), _hazmat("kdf.hkdf")
    info = framed(b"fogline credentials", name.tenant.encode(), name.gateway.encode())
    key = hkdf.HKDF(algorithm=hashes.SHA256(), length=32, salt=salt, info=info).derive(shared)
    return _hazmat("ciphers.aead").AESGCM(key)


def _place(name: GatewayName, gateway_key: bytes, bridge_key: bytes, number: int) -> bytes:
    names = (name.tenant.encode(), name.gateway.encode())
    return framed(b"fogline credentials", *names, gateway_key, bridge_key, b"%d" % number)


def _nonce(number: int) -> bytes:
    return number.to_bytes(12)


def _public_of(text: str) -> bytes:
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != _PUBLIC_BYTES:
        raise Poison("malformed", "the public key for credentials is not 32 bytes in base64")
    return raw


def _x25519() -> Any:
    return _hazmat("asymmetric.x25519")


def _hazmat(name: str) -> Any:
    """Import a part of the library when it is needed: it takes 6 MB, which a gateway without such devices does not need."""
    return import_module(f"cryptography.hazmat.primitives.{name}")
