"""Bluetooth LE advertisements, and their encoding as AD structures.

Bluetooth Core Specification, Vol 3, Part C, section 11 (length, type, data), and its Supplement, Part A, section 1 (content of
each type). The event has these bytes as data; its properties carry sender and signal strength (`ReceivedAdvertisement`).
"""

import re
from collections.abc import Iterator
from urllib.parse import parse_qsl, urlencode

import msgspec

from fogline.address import shown
from fogline.errors import Poison

CONTENT_TYPE = "application/vnd.fogline-ble-advertisement"
"""Content type of an event whose body is an advertisement."""
GATT_CONTENT_TYPE = "application/vnd.fogline-ble-gatt"
"""Content type of an event whose body is a characteristic's value; the subject is the characteristic's UUID."""

MAX_BYTES = 4096
"""Above 1,650 bytes each for an advertisement and its scan response (Core Specification, Vol 4, Part E, section 7.8.54)."""

_COMPLETE_NAME, _TX_POWER, _MANUFACTURER = 0x09, 0x0A, 0xFF
_SERVICES = {2: 0x03, 4: 0x05, 16: 0x07}
_SERVICE_DATA = {2: 0x16, 4: 0x20, 16: 0x21}  # AD type by the width of its UUIDs in bytes
_LIST_WIDTHS = {0x02: 2, 0x03: 2, 0x04: 4, 0x05: 4, 0x06: 16, 0x07: 16}
_SERVICE_DATA_WIDTHS = {ad_type: width for width, ad_type in _SERVICE_DATA.items()}
_MAX_DATA = 254
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_RSSI_UNKNOWN = 127  # "not available" (Core Specification, Vol 4, Part E, section 7.7.65.2)
_BASE = "-0000-1000-8000-00805f9b34fb"  # ends every UUID that has a short form (Core Specification, Vol 3, Part B, 2.5.1)


class Advertisement(msgspec.Struct, frozen=True, kw_only=True):
    """The content of one advertisement. UUIDs have 128 bits and are in lower case."""

    name: str | None = None
    manufacturer: dict[int, bytes] = msgspec.field(default_factory=dict)  # by company identifier
    service_data: dict[str, bytes] = msgspec.field(default_factory=dict)  # by UUID
    services: tuple[str, ...] = ()  # sorted, each once
    tx_power: int | None = None  # dBm


class ReceivedAdvertisement(msgspec.Struct, frozen=True, kw_only=True):
    """The reception of an advertisement: the sender's address (`AA:BB:CC:DD:EE:FF`), and the RSSI in dBm."""

    address: str | None = None
    rssi: int | None = None


def short_uuid(number: int) -> str:
    """Return the full form of a UUID of 16 or 32 bits."""
    return f"{number:08x}{_BASE}"


def encode(advertisement: Advertisement) -> bytes:
    """Return the AD structures; equal advertisements have equal bytes. Raises `Poison` (`malformed`, `too-big`)."""
    made = b"".join(_structure(ad_type, data) for ad_type, data in _structures(advertisement))
    if len(made) > MAX_BYTES:
        raise Poison("too-big", f"an advertisement of {len(made)} bytes; at most {MAX_BYTES}")
    return made


def decode(data: bytes) -> Advertisement:
    """Return the advertisement of these AD structures. Raises `Poison` (`malformed`, `too-big`).

    Unknown types are ignored. The later of two equal types and keys counts. Bytes that are not UTF-8 become U+FFFD.
    """
    name: str | None = None
    complete = False
    tx_power: int | None = None
    manufacturer: dict[int, bytes] = {}
    service_data: dict[str, bytes] = {}
    services: set[str] = set()
    for ad_type, body in _split(data):
        match ad_type:
            case 0x08 | 0x09:
                if ad_type == _COMPLETE_NAME or not complete:
                    name, complete = body.decode("utf-8", "replace"), ad_type == _COMPLETE_NAME
            case 0x0A:
                tx_power = int.from_bytes(_exactly(1, body, "a TX power level"), "little", signed=True)
            case 0xFF:
                company, rest = _cut(2, body, "manufacturer specific data")
                manufacturer[int.from_bytes(company, "little")] = rest
            case _ if ad_type in _SERVICE_DATA_WIDTHS:
                uuid, rest = _cut(_SERVICE_DATA_WIDTHS[ad_type], body, "service data")
                service_data[_uuid(uuid)] = rest
            case _ if ad_type in _LIST_WIDTHS:
                services.update(_uuids(_LIST_WIDTHS[ad_type], body))
    uuids = tuple(sorted(services))
    return Advertisement(name=name, manufacturer=manufacturer, service_data=service_data, services=uuids, tx_power=tx_power)


def encode_heard(heard: ReceivedAdvertisement) -> str:
    """Return the reception as a URL query, for `Event.properties`. An RSSI of 127 is none."""
    pairs = {"address": heard.address, "rssi": _known_rssi(heard.rssi)}
    return urlencode({key: value for key, value in pairs.items() if value is not None})


def decode_heard(properties: str | None) -> ReceivedAdvertisement:
    """Return the reception from an event's properties. Others, and unreadable ones, are ignored. An RSSI of 127 is none."""
    try:
        found = dict(parse_qsl(properties or "", max_num_fields=64))
        heard = msgspec.convert(
            {key: found[key] for key in ("address", "rssi") if key in found}, ReceivedAdvertisement, strict=False
        )
    except ValueError:  # msgspec's errors are ValueErrors too
        return ReceivedAdvertisement()
    return ReceivedAdvertisement(address=heard.address, rssi=_known_rssi(heard.rssi))


def _known_rssi(rssi: int | None) -> int | None:
    return None if rssi == _RSSI_UNKNOWN else rssi


def _structures(advertisement: Advertisement) -> Iterator[tuple[int, bytes]]:
    """Yield AD type and data, in a fixed order. There are no flags, because a host does not get them."""
    services = [_shortest(uuid) for uuid in sorted(set(advertisement.services))]
    for width, ad_type in _SERVICES.items():
        uuids, step = [uuid for uuid in services if len(uuid) == width], _MAX_DATA // width
        for start in range(0, len(uuids), step):  # a long list takes several structures
            yield ad_type, b"".join(uuids[start : start + step])
    if advertisement.name is not None:
        try:
            yield _COMPLETE_NAME, advertisement.name.encode()
        except UnicodeEncodeError:
            raise Poison("malformed", f"a name that is not Unicode: {shown(advertisement.name)}") from None
    if advertisement.tx_power is not None:
        yield _TX_POWER, _integer(advertisement.tx_power, 1, "a TX power level", signed=True)
    for uuid, body in sorted(advertisement.service_data.items()):
        short = _shortest(uuid)
        yield _SERVICE_DATA[len(short)], short + body
    for company, body in sorted(advertisement.manufacturer.items()):
        yield _MANUFACTURER, _integer(company, 2, "a company's number") + body


def _structure(ad_type: int, data: bytes) -> bytes:
    if len(data) > _MAX_DATA:
        raise Poison("too-big", f"{len(data)} bytes of AD type 0x{ad_type:02X}; at most {_MAX_DATA}")
    return bytes((len(data) + 1, ad_type)) + data


def _split(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield AD type and data of each structure. A length of 0 ends them early; only zeros may follow."""
    if len(data) > MAX_BYTES:
        raise Poison("too-big", f"an advertisement of {len(data)} bytes; at most {MAX_BYTES}")
    at = 0
    while at < len(data):
        length = data[at]
        if length == 0:
            if any(data[at:]):
                raise Poison("malformed", f"an advertisement goes on after its end, at byte {at}")
            return
        if at + 1 + length > len(data):
            raise Poison("malformed", f"an AD structure of {length} bytes at byte {at}, where {len(data) - at - 1} are left")
        yield data[at + 1], data[at + 2 : at + 1 + length]
        at += 1 + length


def _uuids(width: int, body: bytes) -> Iterator[str]:
    if len(body) % width:
        raise Poison("malformed", f"{len(body)} bytes of UUIDs that have {width} each")
    for start in range(0, len(body), width):
        yield _uuid(body[start : start + width])


def _uuid(little_endian: bytes) -> str:
    digits = little_endian[::-1].hex()
    if len(digits) < 32:
        return f"{digits:>08}{_BASE}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _shortest(uuid: str) -> bytes:
    if _UUID.fullmatch(uuid) is None:
        raise Poison("malformed", f"expected a UUID of 128 bits in lower case: {shown(uuid)}")
    if uuid.endswith(_BASE):
        number = int(uuid[:8], 16)
        return number.to_bytes(2 if number < 1 << 16 else 4, "little")
    return bytes.fromhex(uuid.replace("-", ""))[::-1]


def _integer(value: int, width: int, what: str, *, signed: bool = False) -> bytes:
    try:
        return value.to_bytes(width, "little", signed=signed)
    except OverflowError:
        raise Poison("malformed", f"{what} of {value} does not fit into {width} bytes") from None


def _exactly(width: int, body: bytes, what: str) -> bytes:
    if len(body) != width:
        raise Poison("malformed", f"{what} of {len(body)} bytes; expected {width}")
    return body


def _cut(width: int, body: bytes, what: str) -> tuple[bytes, bytes]:
    if len(body) < width:
        raise Poison("malformed", f"{what} of {len(body)} bytes; its identifier alone has {width}")
    return body[:width], body[width:]
