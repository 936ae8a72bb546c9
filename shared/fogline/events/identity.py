"""Semantic identity: `(source, id)`, computed from the best evidence that the device gives.

`id = base32(BLAKE2b-128(tier, tenant, device, channel, key))`, every field length-prefixed. The gateway's name and clock do not
enter it, so that two gateways compute the same id for one message. Dedup is strong with tiers 1 to 3 (`UniqueId`,
`SessionCounter`, `Counter`), good with 4 (`DeviceTime`) and weak with 5 (no evidence: see `sequence_id`).

An equal payload alone is never a duplicate: two equal readings are two events. In doubt, the gateway keeps an event.
"""

import hashlib
from enum import StrEnum
from functools import lru_cache

import msgspec


class Dedup(StrEnum):
    """Certainty of recognising a retransmission of the event.

    `SHARED`: several gateways may receive the device's message, and all compute the same id. The id contains a counter
    without its wraps, so that two events far apart may share an id: only events within a time window are duplicates.
    `UNIQUE`: several gateways may receive it, and the id is never used again: events of any age are compared, and one is kept.
    `MARKED`: as `UNIQUE`, and all copies are kept, marked. `NONE`: several events may have the id, and nobody compares them.
    """

    STRONG = "strong"
    GOOD = "good"
    WEAK = "weak"
    SHARED = "shared"
    UNIQUE = "unique"
    MARKED = "marked"
    NONE = "none"


COMPARED_BY_ID = (Dedup.UNIQUE, Dedup.MARKED)
"""Events that the flow compares with all earlier ones, because another gateway may have stored them."""


class Duplicates(StrEnum):
    """Treatment of an event that has the identity of an earlier one."""

    DROP = "drop"  # it is a duplicate: one of them is kept
    MARK = "mark"  # both are kept, and the second names the first
    NONE = "none"  # both are kept, and nobody compares them


class UniqueId(msgspec.Struct, frozen=True, tag=1):
    """Tier 1: the device names each event."""

    value: bytes


class SessionCounter(msgspec.Struct, frozen=True, tag=2):
    """Tier 2: a counter within a boot or session that the device names."""

    session: bytes
    counter: int


class Counter(msgspec.Struct, frozen=True, tag=3):
    """Tier 3: a bare counter of `width_bits` (RFC 1982 arithmetic); it wraps, and restarts with the device."""

    value: int
    width_bits: int


class DeviceTime(msgspec.Struct, frozen=True, tag=4):
    """Tier 4: the device's own timestamp, nanoseconds since 1970."""

    time_ns: int


Evidence = UniqueId | SessionCounter | Counter | DeviceTime


class AckDelivery(StrEnum):
    """Delivery of the acknowledgement of a slot's last message, as far as the protocol's adapter knows."""

    UNPROVEN = "unproven"  # a marked copy of that message is a retransmission
    DOUBTFUL = "doubtful"  # it may be one; the gateway stores it, with the id of the event that it may repeat
    PROVEN = "proven"  # it is a new message, unless the slot's last message came before this run of the gateway


class Retransmission(msgspec.Struct, frozen=True, gc=False):
    """A protocol's information about a message that the sender may retransmit: under the same `slot` and `number`."""

    slot: bytes  # MQTT: client; CoAP: endpoint
    again: bool  # the sender marks the message as possibly sent before (MQTT: DUP)
    window_s: int = 48 * 3600  # time after the first copy in which the slot means the same message
    number: int = 0  # MQTT: packet id; CoAP: message id. Up to 65,535 in ascending order takes the least space.
    token: bytes = b""  # another value that must be equal (CoAP: the token)
    ack_delivery: AckDelivery = AckDelivery.UNPROVEN  # of the slot's last message


class RuleIdentity(msgspec.Struct, frozen=True, gc=False):
    """The rule of the settings that applies to an arrival, and whose values are its `evidence`.

    `content`: 16-byte digest of the payload by its values, so that its spelling does not matter; None if the payload lacks a
    field of the rule, so that the evidence is the protocol's. `window_s`: time after the first copy in which an equal key is
    the same event; None: as long as the gateway remembers it.
    """

    rule: str
    content: bytes | None
    duplicates: Duplicates = Duplicates.DROP
    window_s: int | None = None


def digest(channel: str, data: bytes, token: bytes = b"") -> bytes:
    """Return the 16-byte digest of a payload on its channel."""
    return hashlib.blake2b(channel_frame(channel, token) + data, digest_size=16).digest()


@lru_cache(maxsize=4096)
def channel_frame(channel: str, token: bytes = b"") -> bytes:
    """Return what `digest` hashes before the payload."""
    return _framed(channel.encode()) + (_framed(token) if token else b"")


def semantic_id(tier: int, tenant: str, device: str, channel: str, *key: bytes) -> str:
    """Return the CloudEvents `id`: 26 characters of base32 (RFC 4648 section 6) without padding."""
    fields = _beginning(tier, tenant, device, channel) + b"".join([_framed(field) for field in key])
    return _base32(hashlib.blake2b(fields, digest_size=16).digest())


def sequence_id(stream: str, sequence: int, tag: str) -> str:
    """Return the `id` of tier 5: stream and sequence of the first insert, and random digits that differ in a copied outbox."""
    return f"{stream}.{sequence}.{tag}"


@lru_cache(maxsize=4096)
def _beginning(tier: int, tenant: str, device: str, channel: str) -> bytes:
    return bytes((tier,)) + b"".join(_framed(field.encode()) for field in (tenant, device, channel))


def _framed(field: bytes) -> bytes:
    return len(field).to_bytes(4, "big") + field


_PAIRS = tuple(a + b for a in "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567" for b in "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567")
_SHIFTS = tuple(range(120, -1, -10))


def _base32(data: bytes) -> str:
    """Return 16 bytes in base32, two characters a step: five times as fast as the standard library."""
    number = int.from_bytes(data, "big") << 2
    return "".join([_PAIRS[number >> shift & 1023] for shift in _SHIFTS])
