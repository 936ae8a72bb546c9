"""Credentials of devices: the keys with which a device and its gateways prove themselves to each other. Values; no IO.

Their representations leave the secrets out, so that no log, error or traceback has one.
"""

import base64
import hashlib
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from fogline.documents.json_document import read_document
from fogline.events.codec import Identifier

MAX_KEYS = 8
"""Keys that a device may have at a time, of both kinds."""
MAX_IDENTITY = 128
"""Longest PSK identity, in bytes (RFC 4279, section 5.3)."""
MAX_ENDED = 8
"""Keys that count no longer, of which a device's record tells: the latest ones."""
OSCORE_GATEWAY_ID = b"\x00"
"""The Sender ID of every gateway (RFC 8613). A device's own is never equal to it."""
MIN_DEVICE_ID, MAX_DEVICE_ID = 2, 7
"""Shortest and longest Sender ID of a device, in bytes: RFC 8613, section 3.3, leaves 7 for AES-CCM-16-64-128."""

KeyNumber = Annotated[int, Meta(ge=1, le=2**31 - 1)]
_Ms = Annotated[int, Meta(ge=0, le=2**53)]
_Identity = Annotated[str, Meta(min_length=1, max_length=MAX_IDENTITY, pattern=r"\A[A-Za-z0-9._:/-]+\Z")]


class PskKey(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="psk"):
    """A pre-shared key for DTLS (RFC 4279). `until_ms`: valid before, in milliseconds since 1970; 0: without an end."""

    number: KeyNumber
    identity: _Identity
    key: Annotated[bytes, Meta(min_length=16, max_length=64)]
    until_ms: _Ms = 0

    def __repr__(self) -> str:
        return f"PskKey(number={self.number}, identity={self.identity!r}, until_ms={self.until_ms})"

    def valid_at(self, now_ms: int) -> bool:
        """Return True if the key counts at a time."""
        return not self.until_ms or now_ms < self.until_ms


class OscoreKey(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="oscore"):
    """The input of an OSCORE security context (RFC 8613, section 3.2), with AES-CCM-16-64-128 and HKDF SHA-256.

    `device_id`: the device's Sender ID. The gateway's is `OSCORE_GATEWAY_ID`, and the ID Context is the gateway's name, so that
    two gateways that hear one device never use the same key. `until_ms`: as in `PskKey`.
    """

    number: KeyNumber
    device_id: Annotated[bytes, Meta(min_length=MIN_DEVICE_ID, max_length=MAX_DEVICE_ID)]
    secret: Annotated[bytes, Meta(min_length=16, max_length=64)]
    salt: Annotated[bytes, Meta(max_length=32)] = b""
    until_ms: _Ms = 0

    def __repr__(self) -> str:
        return f"OscoreKey(number={self.number}, device_id={self.device_id.hex()}, until_ms={self.until_ms})"

    def valid_at(self, now_ms: int) -> bool:
        """Return True if the key counts at a time."""
        return not self.until_ms or now_ms < self.until_ms


DeviceKey = PskKey | OscoreKey
DeviceKeys = Annotated[list[DeviceKey], Meta(max_length=MAX_KEYS)]
KeyKind = Literal["psk", "oscore"]


class EndedKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key that was revoked or replaced, without its secret: so a gateway can say why it refuses. `name`: see `key_name`."""

    number: KeyNumber
    kind: KeyKind
    name: Annotated[str, Meta(min_length=1, max_length=MAX_IDENTITY)]
    ended_ms: _Ms


EndedKeys = Annotated[list[EndedKey], Meta(max_length=MAX_ENDED)]


def key_name(key: DeviceKey) -> tuple[KeyKind, str]:
    """Return the kind of a key, and by what a device names it: its identity, or its Sender ID in hexadecimal digits."""
    return ("psk", key.identity) if isinstance(key, PskKey) else ("oscore", key.device_id.hex())


class DeviceCredentials(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of one device, as a gateway keeps them. `version` grows with each change.

    A device without a key has lost all of them: nobody may speak for it. `ended`: keys that count no longer.
    """

    device: Identifier
    version: Annotated[int, Meta(ge=1, le=2**53)]
    keys: DeviceKeys = []
    ended: EndedKeys = []


def encode_credentials(credentials: DeviceCredentials) -> bytes:
    """Return the credentials as JSON. Equal credentials have equal bytes."""
    return msgspec.json.encode(credentials)


def decode_credentials(body: bytes) -> DeviceCredentials:
    """Return the credentials of a JSON text. Raises `Poison('malformed')`, whose text repeats no secret."""
    return read_document(body, DeviceCredentials, "the credentials of a device")


def credentials_digest(credentials: DeviceCredentials) -> bytes:
    """Return the 16 bytes by which a bridge and a gateway compare what they have of a device."""
    return hashlib.blake2b(encode_credentials(credentials), digest_size=16).digest()


def set_digest(digests: dict[str, bytes]) -> str:
    """Return one digest of the credentials of many devices. `digests`: by device."""
    whole = hashlib.blake2b(digest_size=16)
    for device in sorted(digests):
        whole.update(device.encode() + b"\0" + digests[device])
    return base64.b64encode(whole.digest()).decode()
