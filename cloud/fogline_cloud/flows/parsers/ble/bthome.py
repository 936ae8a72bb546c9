"""BTHome v2: service data of UUID 0xFCD2 (bthome.io/format, bthome.io/encryption)."""

from collections import Counter
from collections.abc import Iterator

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESCCM

from fogline.errors import Poison
from fogline_cloud.flows.parsers import Reading, Skip
from fogline_cloud.flows.parsers.ble.bthome_objects import (
    BUTTONS,
    COMMAND_LENGTH,
    COMMANDS,
    DIMMER_LEFT,
    DIMMER_RIGHT,
    OBJECTS,
    Kind,
    Object,
)
from fogline_cloud.flows.parsers.ble.decoding import Broadcast, truncated

UUID16 = 0xFCD2
_ENCRYPTED, _HAS_ADDRESS, _VERSION = 0x01, 0x02, 2
_ADDRESS_BYTES = 6
_COUNTER_BYTES = _MIC_BYTES = 4

Found = list[tuple[Object, bytes]]


def decode(data: bytes, broadcast: Broadcast) -> list[Reading]:
    """The readings of one advertisement.

    Objects of an id that is not known end it, because their length is not known either: what is left is a reading
    `unparsed`, in hex. Of several objects of one metric, each has its number behind it (`temperature.1`).

    Raises `Skip` (`bthome-version`, `no-key`, `wrong-key`, `no-address`, `not-encrypted`, `nothing`) and `Poison`
    (`truncated`, `malformed`).
    """
    objects, rest = split(_plain(data, broadcast))
    numbered = Counter(each.metric for each, _ in objects)
    readings: list[Reading] = []
    seen: Counter[str] = Counter()
    for each, body in objects:
        seen[each.metric] += 1
        behind = f".{seen[each.metric]}" if numbered[each.metric] > 1 else ""
        readings += _readings(each, body, behind)
    if rest:
        readings.append(Reading("unparsed", text=rest.hex()))
    if not readings:
        raise Skip("nothing", "a BTHome advertisement that says nothing")
    return readings


def split(payload: bytes) -> tuple[Found, bytes]:
    """Objects with their bytes, and what follows an object that is not known. Raises `Poison('truncated')`."""
    found: Found = []
    at = 0
    while at < len(payload):
        known = OBJECTS.get(payload[at])
        if known is None:
            return found, payload[at:]
        at += 1
        width = known.width
        if not width:
            if at == len(payload):
                raise Poison("truncated", f"BTHome's {known.metric} ends before its length")
            width = payload[at] if known.kind is not Kind.COMMAND else 1 + (payload[at] & COMMAND_LENGTH)
            at += 1
        if at + width > len(payload):
            raise Poison("truncated", f"BTHome's {known.metric} has {width} bytes, where {len(payload) - at} are left")
        found.append((known, payload[at : at + width]))
        at += width
    return found, b""


def _plain(data: bytes, broadcast: Broadcast) -> bytes:
    """The objects' bytes."""
    if not data:
        raise truncated("BTHome's service data", data, 1)
    info = data[0]
    if info >> 5 != _VERSION:
        raise Skip("bthome-version", f"BTHome version {info >> 5}; only {_VERSION} is known")
    begin = 1 + (_ADDRESS_BYTES if info & _HAS_ADDRESS else 0)
    if len(data) < begin:
        raise truncated("BTHome's service data with an address", data, begin)
    if info & _ENCRYPTED:
        return _decrypted(info, data[1:begin][::-1], data[begin:], broadcast)
    if broadcast.key is not None:
        raise Skip("not-encrypted", "this device has a key, so what it says in plain may be somebody else's")
    return data[begin:]


def _address(broadcast: Broadcast) -> bytes:
    try:
        address = bytes.fromhex((broadcast.heard.address or "").replace(":", ""))
    except ValueError:
        address = b""
    if len(address) != _ADDRESS_BYTES:
        raise Skip("no-address", "an encrypted advertisement can only be read with the address that it came from")
    return address


def _decrypted(info: int, told: bytes, data: bytes, broadcast: Broadcast) -> bytes:
    """AES-CCM with a MIC of 4 bytes; the nonce is address (`told`, if it is not empty), UUID, information, counter."""
    if len(data) < _COUNTER_BYTES + _MIC_BYTES:
        raise truncated("an encrypted BTHome payload", data, _COUNTER_BYTES + _MIC_BYTES)
    if broadcast.key is None:
        raise Skip("no-key", "encrypted, and no key of this device or address is in [flow] ble_keys")
    counter, mic = data[-_COUNTER_BYTES - _MIC_BYTES : -_MIC_BYTES], data[-_MIC_BYTES:]
    nonce = (told or _address(broadcast)) + UUID16.to_bytes(2, "little") + bytes((info,)) + counter
    try:
        return AESCCM(broadcast.key, tag_length=_MIC_BYTES).decrypt(nonce, data[: -_COUNTER_BYTES - _MIC_BYTES] + mic, None)
    except (InvalidTag, ValueError):
        raise Skip("wrong-key", "the key of this device does not fit this advertisement") from None


def _readings(known: Object, body: bytes, behind: str) -> Iterator[Reading]:
    metric = known.metric + behind
    match known.kind:
        case Kind.NUMBER:
            number = int.from_bytes(body, "little", signed=known.signed)
            yield Reading(metric, number * known.times / known.per, unit=known.unit)
        case Kind.FLAG:
            yield Reading(metric, float(body != b"\0"))
        case Kind.BUTTON if body[0]:
            yield Reading(metric, text=BUTTONS.get(body[0], f"0x{body[0]:02x}"))
        case Kind.DIMMER if body[0] in (DIMMER_LEFT, DIMMER_RIGHT):
            yield Reading(metric, float(body[1] if body[0] == DIMMER_RIGHT else -body[1]))
        case Kind.COMMAND:
            yield Reading(metric, text=COMMANDS.get(body[0], f"0x{body[0]:02x}"))
            if len(body) > 1:
                yield Reading(f"command_arguments{behind}", text=body[1:].hex())
        case Kind.TEXT:
            yield Reading(metric, text=_text(body))
        case Kind.RAW:
            yield Reading(metric, text=body.hex())
        case Kind.VERSION:
            yield Reading(metric, text=".".join(map(str, reversed(body))))


def _text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise Poison("malformed", "BTHome's text is not UTF-8") from None
