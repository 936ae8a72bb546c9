"""What a Bluetooth LE device broadcasts, and its bytes: AD structures.

Bluetooth Core Specification, Vol 3, Part C, section 11 (length, type, data), and its Supplement, Part A, section 1 (what
each type holds). Between a gateway and the flow an advertisement travels as these bytes (`CONTENT_TYPE`); who sent it and
how strongly it was heard stand beside them, in the event's properties (`Heard`).
"""

import re
from collections.abc import Iterable, Iterator
from urllib.parse import parse_qsl, urlencode

import msgspec

from fogline.address import shown
from fogline.errors import Poison

CONTENT_TYPE = "application/vnd.fogline-ble-advertisement"
"""The content type of an event whose body is an advertisement."""
GATT_CONTENT_TYPE = "application/vnd.fogline-ble-gatt"
"""The content type of an event whose body is the value of a characteristic; its subject is the characteristic's UUID."""

MAX_BYTES = 4096
"""An advertisement and its scan response have up to 1,650 bytes each (Core Specification, Vol 4, Part E, section 7.8.54)."""

_COMPLETE_NAME, _TX_POWER, _MANUFACTURER = 0x09, 0x0A, 0xFF
_SERVICES = {2: 0x03, 4: 0x05, 16: 0x07}
_SERVICE_DATA = {2: 0x16, 4: 0x20, 16: 0x21}
"""AD type by the number of bytes of its UUIDs."""
_LISTS = {0x02: 2, 0x03: 2, 0x04: 4, 0x05: 4, 0x06: 16, 0x07: 16}
_BESIDE_DATA = {ad_type: width for width, ad_type in _SERVICE_DATA.items()}
_MAX_DATA = 254
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_BASE = "-0000-1000-8000-00805f9b34fb"
"""What follows the first 32 bits of a UUID that has a short form (Core Specification, Vol 3, Part B, section 2.5.1)."""


class Advertisement(msgspec.Struct, frozen=True, kw_only=True):
    """What one device broadcasts.

    `manufacturer`: data by the company's number. `service_data`: data by UUID. UUIDs have 128 bits and are in lower case.
    `services`: in order, each once. `tx_power`: in dBm at the antenna.
    """

    name: str | None = None
    manufacturer: dict[int, bytes] = msgspec.field(default_factory=dict)
    service_data: dict[str, bytes] = msgspec.field(default_factory=dict)
    services: tuple[str, ...] = ()
    tx_power: int | None = None


class Heard(msgspec.Struct, frozen=True, kw_only=True):
    """What a gateway knows of an advertisement that does not stand in it: who sent it (`AA:BB:CC:DD:EE:FF`), and the RSSI."""

    address: str | None = None
    rssi: int | None = None


def short_uuid(number: int) -> str:
    """A UUID of 16 or 32 bits in full."""
    return f"{number:08x}{_BASE}"


def encode(advertisement: Advertisement) -> bytes:
    """As AD structures, always the same bytes for equal advertisements.

    Lists of services that do not fit into one structure go on in the next. Raises `Poison` (`malformed`, `too-big`).
    """
    made = b"".join(_structure(ad_type, data) for ad_type, data in _structures(advertisement))
    if len(made) > MAX_BYTES:
        raise Poison("too-big", f"an advertisement of {len(made)} bytes; at most {MAX_BYTES}")
    return made


def decode(data: bytes) -> Advertisement:
    """The inverse of `encode`, and of what is on the air.

    Types that are not known are passed over; of two structures that say the same thing the later one counts; bytes of a
    name that are no UTF-8 become U+FFFD. Raises `Poison` (`malformed`, `too-big`).
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
            case _ if ad_type in _BESIDE_DATA:
                uuid, rest = _cut(_BESIDE_DATA[ad_type], body, "service data")
                service_data[_uuid(uuid)] = rest
            case _ if ad_type in _LISTS:
                services.update(_uuids(_LISTS[ad_type], body))
    return Advertisement(
        name=name,
        manufacturer=manufacturer,
        service_data=service_data,
        services=tuple(sorted(services)),
        tx_power=tx_power,
    )


def encode_heard(heard: Heard) -> str:
    """As an event's properties: a URL query."""
    pairs = {"address": heard.address, "rssi": heard.rssi}
    return urlencode({key: value for key, value in pairs.items() if value is not None})


def decode_heard(properties: str | None) -> Heard:
    """The inverse of `encode_heard`. What is not readable, and what else the properties say, is passed over."""
    try:
        found = dict(parse_qsl(properties or "", max_num_fields=64))
        return msgspec.convert({key: found[key] for key in ("address", "rssi") if key in found}, Heard, strict=False)
    except ValueError:  # msgspec's errors are ValueErrors too
        return Heard()


def _structures(advertisement: Advertisement) -> Iterator[tuple[int, bytes]]:
    """AD type and data, in a fixed order: flags, which a host does not learn, are none of them."""
    for ad_type, uuids in _grouped(advertisement.services):
        width = len(uuids[0])
        step = _MAX_DATA // width
        for start in range(0, len(uuids), step):
            yield ad_type, b"".join(uuids[start : start + step])
    if advertisement.name is not None:
        try:
            yield _COMPLETE_NAME, advertisement.name.encode()
        except UnicodeEncodeError:
            raise Poison("malformed", f"a name that is no Unicode: {shown(advertisement.name)}") from None
    if advertisement.tx_power is not None:
        yield _TX_POWER, _integer(advertisement.tx_power, 1, "a TX power level", signed=True)
    for uuid, body in sorted(advertisement.service_data.items()):
        short = _shortest(uuid)
        yield _SERVICE_DATA[len(short)], short + body
    for company, body in sorted(advertisement.manufacturer.items()):
        yield _MANUFACTURER, _integer(company, 2, "a company's number") + body


def _grouped(services: Iterable[str]) -> Iterator[tuple[int, list[bytes]]]:
    shortest = [_shortest(uuid) for uuid in sorted(set(services))]
    for width, ad_type in _SERVICES.items():
        found = [uuid for uuid in shortest if len(uuid) == width]
        if found:
            yield ad_type, found


def _structure(ad_type: int, data: bytes) -> bytes:
    if len(data) > _MAX_DATA:
        raise Poison("too-big", f"{len(data)} bytes of AD type 0x{ad_type:02X}; at most {_MAX_DATA}")
    return bytes((len(data) + 1, ad_type)) + data


def _split(data: bytes) -> Iterator[tuple[int, bytes]]:
    """AD type and data of each structure. A length of 0 ends them early: nothing but zeros may follow."""
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
    """A UUID's shortest form, little endian."""
    if _UUID.fullmatch(uuid) is None:
        raise Poison("malformed", f"a UUID of 128 bits in lower case was expected: {shown(uuid)}")
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
        raise Poison("malformed", f"{what} of {len(body)} bytes, where {width} are expected")
    return body


def _cut(width: int, body: bytes, what: str) -> tuple[bytes, bytes]:
    if len(body) < width:
        raise Poison("malformed", f"{what} of {len(body)} bytes, of which the first {width} say whose it is")
    return body[:width], body[width:]
