"""Beacons: iBeacon (Apple's Proximity Beacon Specification) and Eddystone-TLM (google/eddystone, tlm-plain.md)."""

import uuid
from struct import Struct

from fogline_cloud.flows.parsers import Leftover, Reading, Skip
from fogline_cloud.flows.parsers.ble.decoding import Broadcast, truncated

APPLE = 0x004C
EDDYSTONE_UUID16 = 0xFEAA

_IBEACON = b"\x02\x15"  # type, and the length of the rest
_PROXIMITY = Struct(">16sHHb")
_TLM, _PLAIN = 0x20, 0x00
_TELEMETRY = Struct(">HhII")
_NO_VOLTAGE, _NO_TEMPERATURE = 0, -0x8000


def decode_ibeacon(data: bytes, _: Broadcast) -> list[Reading | Leftover]:
    """Decode a beacon's identity and its RSSI at one metre. Raises `Skip('not-ibeacon')` and `Poison('truncated')`."""
    if not data.startswith(_IBEACON):
        raise Skip("not-ibeacon", "Apple data that is not an iBeacon")
    if len(data) < len(_IBEACON) + _PROXIMITY.size:
        raise truncated("an iBeacon", data, len(_IBEACON) + _PROXIMITY.size)
    proximity, major, minor, power = _PROXIMITY.unpack_from(data, len(_IBEACON))
    return [
        Reading("proximity_uuid", text=str(uuid.UUID(bytes=proximity))),
        Reading("major", float(major)),
        Reading("minor", float(minor)),
        Reading("measured_power", float(power), unit="dBm"),
    ]


def decode_eddystone(data: bytes, _: Broadcast) -> list[Reading | Leftover]:
    """Decode what a beacon measures. Raises `Skip` (`not-tlm`, `encrypted-tlm`) and `Poison('truncated')`."""
    if data[:1] != bytes((_TLM,)):
        raise Skip("not-tlm", "an Eddystone frame that is not telemetry")
    if len(data) > 1 and data[1] != _PLAIN:
        raise Skip("encrypted-tlm", f"Eddystone-TLM version {data[1]}; only plain telemetry, version 0, is read")
    if len(data) < 2 + _TELEMETRY.size:
        raise truncated("Eddystone-TLM", data, 2 + _TELEMETRY.size)
    millivolts, temperature, count, tenths = _TELEMETRY.unpack_from(data, 2)
    return [
        *([] if millivolts == _NO_VOLTAGE else [Reading("voltage", millivolts / 1000, unit="V")]),
        *([] if temperature == _NO_TEMPERATURE else [Reading("temperature", temperature / 256, unit="Cel")]),
        Reading("advertisement_count", float(count)),
        Reading("uptime", tenths / 10, unit="s"),
    ]
