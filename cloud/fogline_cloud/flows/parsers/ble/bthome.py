"""BTHome v2: service data of UUID 0xFCD2 (bthome.io/format, bthome.io/encryption)."""

from collections import Counter
from collections.abc import Iterator
from enum import Enum, auto

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESCCM

from fogline_cloud.flows.parsers import Leftover, Reading, Skip
from fogline_cloud.flows.parsers.ble.decoding import Broadcast, truncated

UUID16 = 0xFCD2
_ENCRYPTED, _HAS_ADDRESS, _VERSION = 0x01, 0x02, 2
_ADDRESS_BYTES = 6
_COUNTER_BYTES = _MIC_BYTES = 4


class ObjectKind(Enum):
    """Encoding of an object's bytes."""

    NUMBER = auto()
    FLAG = auto()
    BUTTON = auto()
    DIMMER = auto()
    COMMAND = auto()
    TEXT = auto()
    RAW = auto()
    VERSION = auto()


class Object(msgspec.Struct, frozen=True):
    """An object of `width` bytes (0: after a length byte), little endian; multiplied by `times` and divided by `per`."""

    metric: str
    width: int = 1
    per: int = 1
    unit: str | None = None
    signed: bool = False
    times: int = 1
    kind: ObjectKind = ObjectKind.NUMBER


_FLAGS = {  # Flags, 1 or 0. A flag that shares its name with a measured value gets a longer name here.
    0x0F: "generic", 0x10: "power_on", 0x11: "opening", 0x15: "battery_low", 0x16: "battery_charging",
    0x17: "carbon_monoxide", 0x18: "cold", 0x19: "connectivity", 0x1A: "door", 0x1B: "garage_door",
    0x1C: "gas_detected", 0x1D: "heat", 0x1E: "light", 0x1F: "lock", 0x20: "moisture_detected", 0x21: "motion",
    0x22: "moving", 0x23: "occupancy", 0x24: "plug", 0x25: "presence", 0x26: "problem", 0x27: "running",
    0x28: "safety", 0x29: "smoke", 0x2A: "sound", 0x2B: "tamper", 0x2C: "vibration", 0x2D: "window",
}  # fmt: skip

OBJECTS: dict[int, Object] = {
    **{number: Object(metric, kind=ObjectKind.FLAG) for number, metric in _FLAGS.items()},
    0x00: Object("packet_id"),
    0x01: Object("battery", 1, 1, "%"),
    0x02: Object("temperature", 2, 100, "Cel", signed=True),
    0x03: Object("humidity", 2, 100, "%RH"),
    0x04: Object("pressure", 3, 100, "hPa"),
    0x05: Object("illuminance", 3, 100, "lx"),
    0x06: Object("mass", 2, 100, "kg"),
    0x07: Object("mass", 2, 100, "lb"),
    0x08: Object("dew_point", 2, 100, "Cel", signed=True),
    0x09: Object("count"),
    0x0A: Object("energy", 3, 1000, "kWh"),
    0x0B: Object("power", 3, 100, "W"),
    0x0C: Object("voltage", 2, 1000, "V"),
    0x0D: Object("pm2_5", 2, 1, "ug/m3"),
    0x0E: Object("pm10", 2, 1, "ug/m3"),
    0x12: Object("co2", 2, 1, "ppm"),
    0x13: Object("tvoc", 2, 1, "ug/m3"),
    0x14: Object("moisture", 2, 100, "%"),
    0x2E: Object("humidity", 1, 1, "%RH"),
    0x2F: Object("moisture", 1, 1, "%"),
    0x3A: Object("button", 1, kind=ObjectKind.BUTTON),
    0x3B: Object("command", 0, kind=ObjectKind.COMMAND),
    0x3C: Object("dimmer", 2, kind=ObjectKind.DIMMER),
    0x3D: Object("count", 2),
    0x3E: Object("count", 4),
    0x3F: Object("rotation", 2, 10, "deg", signed=True),
    0x40: Object("distance", 2, 1, "mm"),
    0x41: Object("distance", 2, 10, "m"),
    0x42: Object("duration", 3, 1000, "s"),
    0x43: Object("current", 2, 1000, "A"),
    0x44: Object("speed", 2, 100, "m/s"),
    0x45: Object("temperature", 2, 10, "Cel", signed=True),
    0x46: Object("uv_index", 1, 10),
    0x47: Object("volume", 2, 10, "l"),
    0x48: Object("volume", 2, 1, "ml"),
    0x49: Object("volume_flow_rate", 2, 1000, "m3/h"),
    0x4A: Object("voltage", 2, 10, "V"),
    0x4B: Object("gas", 3, 1000, "m3"),
    0x4C: Object("gas", 4, 1000, "m3"),
    0x4D: Object("energy", 4, 1000, "kWh"),
    0x4E: Object("volume", 4, 1000, "l"),
    0x4F: Object("water", 4, 1000, "l"),
    0x50: Object("timestamp", 4, 1, "s"),
    0x51: Object("acceleration", 2, 1000, "m/s2"),
    0x52: Object("gyroscope", 2, 1000, "deg/s"),
    0x53: Object("text", 0, kind=ObjectKind.TEXT),
    0x54: Object("raw", 0, kind=ObjectKind.RAW),
    0x55: Object("volume_storage", 4, 1000, "l"),
    0x56: Object("conductivity", 2, 1, "uS/cm"),
    0x57: Object("temperature", 1, 1, "Cel", signed=True),
    0x58: Object("temperature", 1, 100, "Cel", signed=True, times=35),
    0x59: Object("count", 1, signed=True),
    0x5A: Object("count", 2, signed=True),
    0x5B: Object("count", 4, signed=True),
    0x5C: Object("power", 4, 100, "W", signed=True),
    0x5D: Object("current", 2, 1000, "A", signed=True),
    0x5E: Object("direction", 2, 100, "deg"),
    0x5F: Object("precipitation", 2, 10, "mm"),
    0x60: Object("channel"),
    0x61: Object("rotational_speed", 2, 1, "1/min"),
    0x62: Object("speed", 4, 1_000_000, "m/s", signed=True),
    0x63: Object("acceleration", 4, 1_000_000, "m/s2", signed=True),
    0x64: Object("light_level"),
    0x65: Object("settings_revision"),
    0xF0: Object("device_type", 2),
    0xF1: Object("firmware_version", 4, kind=ObjectKind.VERSION),
    0xF2: Object("firmware_version", 3, kind=ObjectKind.VERSION),
}

_BUTTONS = {  # 0 means no event. Shelly's firmware before 1.0.20 sends 0xFE.
    0x01: "press", 0x02: "double_press", 0x03: "triple_press", 0x04: "long_press", 0x05: "long_double_press",
    0x06: "long_triple_press", 0x80: "hold_press", 0x81: "hold_release", 0xFE: "hold_press",
}  # fmt: skip
_COMMANDS = {0x00: "off", 0x01: "on", 0x02: "toggle", 0x03: "step_up", 0x04: "step_down"}
_DIMMER_LEFT, _DIMMER_RIGHT = 0x01, 0x02
_COMMAND_LENGTH = 0x1F  # Mask of the byte before a command: number of arguments after the opcode. The other bits are reserved.

Found = list[tuple[Object, bytes]]


def decode(data: bytes, broadcast: Broadcast) -> list[Reading | Leftover]:
    """Decode the objects of one advertisement.

    After an object with an unknown id, the rest is a reading `unparsed`, in hex. Equal metrics get a number
    (`temperature.1`). Not understood: an object that is cut, and text that is not UTF-8. Raises `Skip` (`bthome-version`,
    `no-key`, `wrong-key`, `no-address`, `not-encrypted`, `nothing`) and `Poison('truncated')`.
    """
    objects, rest, cut = split(_plain(data, broadcast))
    numbered = Counter(each.metric for each, _ in objects)
    readings: list[Reading | Leftover] = []
    seen: Counter[str] = Counter()
    for each, body in objects:
        seen[each.metric] += 1
        suffix = f".{seen[each.metric]}" if numbered[each.metric] > 1 else ""
        readings += _readings(each, body, suffix)
    if rest:
        readings.append(Reading("unparsed", text=rest.hex()))
    if cut:
        readings.append(cut)
    if not readings:
        raise Skip("nothing", "a BTHome advertisement without a value")
    return readings


def split(payload: bytes) -> tuple[Found, bytes, Leftover | None]:
    """Return the known objects with their bytes, the bytes from the first unknown one on, and an object that is cut."""
    found: Found = []
    at = 0
    while at < len(payload):
        known = OBJECTS.get(payload[at])
        if known is None:
            return found, payload[at:], None
        at += 1
        width = known.width
        if not width:
            if at == len(payload):
                return found, b"", Leftover(known.metric, "it ends before its length")
            width = payload[at] if known.kind is not ObjectKind.COMMAND else 1 + (payload[at] & _COMMAND_LENGTH)
            at += 1
        if at + width > len(payload):
            return found, b"", Leftover(known.metric, f"it has {width} bytes, but only {len(payload) - at} are left")
        found.append((known, payload[at : at + width]))
        at += width
    return found, b"", None


def _plain(data: bytes, broadcast: Broadcast) -> bytes:
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
        raise Skip("not-encrypted", "this device has a key, so an unencrypted advertisement may be forged")
    return data[begin:]


def _address(broadcast: Broadcast) -> bytes:
    try:
        address = bytes.fromhex((broadcast.reception.address or "").replace(":", ""))
    except ValueError:
        address = b""
    if len(address) != _ADDRESS_BYTES:
        raise Skip("no-address", "the sender's address is needed to decrypt the advertisement, and is not known")
    return address


def _decrypted(info: int, sent_address: bytes, data: bytes, broadcast: Broadcast) -> bytes:
    """Decrypt AES-CCM with a MIC of 4 bytes. `sent_address`: the address in the advertisement, may be empty."""
    if len(data) < _COUNTER_BYTES + _MIC_BYTES:
        raise truncated("an encrypted BTHome payload", data, _COUNTER_BYTES + _MIC_BYTES)
    if broadcast.key is None:
        raise Skip("no-key", "encrypted, and no key of this device or address is in [flow] ble_keys")
    counter, mic = data[-_COUNTER_BYTES - _MIC_BYTES : -_MIC_BYTES], data[-_MIC_BYTES:]
    nonce = (sent_address or _address(broadcast)) + UUID16.to_bytes(2, "little") + bytes((info,)) + counter
    try:
        return AESCCM(broadcast.key, tag_length=_MIC_BYTES).decrypt(nonce, data[: -_COUNTER_BYTES - _MIC_BYTES] + mic, None)
    except (InvalidTag, ValueError):
        raise Skip("wrong-key", "the key of this device does not fit this advertisement") from None


def _readings(known: Object, body: bytes, suffix: str) -> Iterator[Reading | Leftover]:
    metric = known.metric + suffix
    match known.kind:
        case ObjectKind.NUMBER:
            number = int.from_bytes(body, "little", signed=known.signed)
            yield Reading(metric, number * known.times / known.per, unit=known.unit)
        case ObjectKind.FLAG:
            yield Reading(metric, float(body != b"\0"))
        case ObjectKind.BUTTON if body[0]:
            yield Reading(metric, text=_BUTTONS.get(body[0], f"0x{body[0]:02x}"))
        case ObjectKind.DIMMER if body[0] in (_DIMMER_LEFT, _DIMMER_RIGHT):
            yield Reading(metric, float(body[1] if body[0] == _DIMMER_RIGHT else -body[1]))
        case ObjectKind.COMMAND:
            yield Reading(metric, text=_COMMANDS.get(body[0], f"0x{body[0]:02x}"))
            if len(body) > 1:
                yield Reading(f"command_arguments{suffix}", text=body[1:].hex())
        case ObjectKind.TEXT:
            yield _text(metric, body)
        case ObjectKind.RAW:
            yield Reading(metric, text=body.hex())
        case ObjectKind.VERSION:
            yield Reading(metric, text=".".join(map(str, reversed(body))))


def _text(metric: str, body: bytes) -> Reading | Leftover:
    try:
        return Reading(metric, text=body.decode())
    except UnicodeDecodeError:
        return Leftover(metric, "not UTF-8")
