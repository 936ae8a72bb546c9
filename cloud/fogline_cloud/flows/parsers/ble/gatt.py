"""Parser `ble-gatt`: the value of a characteristic. The event's subject ends with the UUID."""

import math
import re

import msgspec

from fogline.errors import Poison
from fogline.events.event import Event
from fogline_cloud.flows.parsers import Reading, Skip


class Format(msgspec.Struct, frozen=True):
    """A little-endian number of `width` bytes, divided by `per`; `unknown` means "value is not known"."""

    metric: str
    width: int
    per: int = 1
    unit: str | None = None
    signed: bool = False
    unknown: int | None = None


NUMBERS: dict[int, Format] = {
    0x2A19: Format("battery", 1, 1, "%"),
    0x2A6C: Format("elevation", 3, 100, "m", signed=True),
    0x2A6D: Format("pressure", 4, 1000, "hPa"),
    0x2A6E: Format("temperature", 2, 100, "Cel", signed=True, unknown=-0x8000),
    0x2A6F: Format("humidity", 2, 100, "%RH", unknown=0xFFFF),
    0x2A70: Format("true_wind_speed", 2, 100, "m/s"),
    0x2A71: Format("true_wind_direction", 2, 100, "deg"),
    0x2A72: Format("apparent_wind_speed", 2, 100, "m/s"),
    0x2A73: Format("apparent_wind_direction", 2, 100, "deg"),
    0x2A74: Format("gust_factor", 1, 10),
    0x2A75: Format("pollen_concentration", 3, 1, "1/m3"),
    0x2A76: Format("uv_index", 1),
    0x2A77: Format("irradiance", 2, 10, "W/m2"),
    0x2A78: Format("rainfall", 2, 1, "mm"),
    0x2A79: Format("wind_chill", 1, 1, "Cel", signed=True),
    0x2A7A: Format("heat_index", 1, 1, "Cel", signed=True),
    0x2A7B: Format("dew_point", 1, 1, "Cel", signed=True),
    0x2AE2: Format("boolean", 1),
    0x2AEA: Format("count", 2, unknown=0xFFFF),
    0x2AEB: Format("count", 3, unknown=0xFFFFFF),
    0x2AEE: Format("current", 2, 100, "A", unknown=0xFFFF),
    0x2AF2: Format("energy", 3, 1, "kWh", unknown=0xFFFFFF),
    0x2AFB: Format("illuminance", 3, 100, "lx", unknown=0xFFFFFF),
    0x2B05: Format("power", 3, 10, "W", unknown=0xFFFFFF),
    0x2B0D: Format("temperature", 1, 2, "Cel", signed=True, unknown=0x7F),
    0x2B18: Format("voltage", 2, 64, "V", unknown=0xFFFF),
    0x2B8C: Format("co2", 2, 1, "ppm", unknown=0xFFFF),
    0x2BE7: Format("voc", 2, 1, "ppb", unknown=0xFFFF),
}
"""Formats by characteristic. Pressure is in tenths of a pascal."""

DUST = {0x2BD5: "pm1", 0x2BD6: "pm2_5", 0x2BD7: "pm10"}
"""Mass concentrations in kg/m3, as a medfloat16 (IEEE 11073-20601)."""

_BATTERY, _TEMPERATURE_MEASUREMENT, _HEART_RATE_MEASUREMENT = 0x2A19, 0x2A1C, 0x2A37
_UUID16 = re.compile(r"(?:0000)?([0-9a-f]{4})(?:-0000-1000-8000-00805f9b34fb)?", re.IGNORECASE)
_FAHRENHEIT, _HAS_TIME, _HAS_TYPE = 0x01, 0x02, 0x04
_TIME_BYTES = 7
_HEART_16_BIT, _HAS_ENERGY, _HAS_INTERVALS = 0x01, 0x08, 0x10
_INTERVALS_PER_SECOND = 1024
_PLACES = {  # Temperature Type (0x2A1D)
    1: "armpit", 2: "body", 3: "ear", 4: "finger", 5: "gastro-intestinal tract", 6: "mouth", 7: "rectum", 8: "toe",
    9: "tympanum",
}  # fmt: skip


def parse(event: Event) -> list[Reading]:
    """Parse one event.

    Raises `Skip` (`unknown-characteristic`, `value-not-known`) and `Poison` (`malformed`, `out-of-range`, `not-finite`).
    """
    number = _number(event.subject)
    if number in NUMBERS:
        return [_read(NUMBERS[number], number, event.data)]
    if number in DUST:
        kilograms = _float(_exactly(event.data, 2, DUST[number]), 12, 4)
        return [Reading(DUST[number], round(kilograms * 1e9, 6), unit="ug/m3")]
    if number == _TEMPERATURE_MEASUREMENT:
        return _temperature_measurement(event.data)
    if number == _HEART_RATE_MEASUREMENT:
        return _heart_rate(event.data)
    raise Skip("unknown-characteristic", f"the format of characteristic {event.subject[:64]!a} is not known")


def _number(subject: str) -> int:
    """Return the SIG's number of a short or full UUID, -1 for others. The channel may have levels before the UUID."""
    found = _UUID16.fullmatch(subject.rpartition("/")[2])
    return -1 if found is None else int(found[1], 16)


def _read(known: Format, number: int, data: bytes) -> Reading:
    value = int.from_bytes(_exactly(data, known.width, known.metric), "little", signed=known.signed)
    if value == known.unknown:
        raise Skip("value-not-known", f"the device reports its {known.metric} as not known")
    if number == _BATTERY and value > 100:
        raise Poison("out-of-range", f"a battery level of {value} %")
    return Reading(known.metric, value / known.per, unit=known.unit)


def _temperature_measurement(data: bytes) -> list[Reading]:
    """Decode 0x2A1C: flags, a FLOAT, and by the flags a time and the place on the body."""
    flags = data[0] if data else 0
    wanted = 5 + (_TIME_BYTES if flags & _HAS_TIME else 0) + (1 if flags & _HAS_TYPE else 0)
    _exactly(data, wanted, "a temperature measurement")
    value = _float(data[1:5], 24, 8)
    readings = [Reading("temperature", round((value - 32) / 1.8, 9) if flags & _FAHRENHEIT else value, unit="Cel")]
    if flags & _HAS_TYPE and data[-1] in _PLACES:
        readings.append(Reading("temperature_type", text=_PLACES[data[-1]]))
    return readings


def _heart_rate(data: bytes) -> list[Reading]:
    """Decode 0x2A37: flags, the rate, and by the flags the energy expended and intervals between beats."""
    flags = data[0] if data else 0
    end = 3 if flags & _HEART_16_BIT else 2
    energy_end = end + (2 if flags & _HAS_ENERGY else 0)
    if len(data) < energy_end or (len(data) > energy_end and not flags & _HAS_INTERVALS) or (len(data) - energy_end) % 2:
        raise Poison("malformed", f"{len(data)} bytes are no heart rate measurement with the flags {flags:#04x}")
    readings = [Reading("heart_rate", float(int.from_bytes(data[1:end], "little")), unit="beat/min")]
    if flags & _HAS_ENERGY:
        readings.append(Reading("energy_expended", float(int.from_bytes(data[end:energy_end], "little")), unit="kJ"))
    for at in range(energy_end, len(data), 2):
        interval = int.from_bytes(data[at : at + 2], "little") / _INTERVALS_PER_SECOND
        readings.append(Reading("rr_interval", interval, unit="s"))
    return readings


def _float(data: bytes, mantissa_bits: int, exponent_bits: int) -> float:
    """Decode an IEEE 11073-20601 number. Raises `Skip('value-not-known')` (NaN, NRes), `Poison('not-finite')` (infinities)."""
    raw = int.from_bytes(data, "little")
    half = 1 << mantissa_bits - 1
    mantissa = (raw & 2 * half - 1 ^ half) - half
    exponent = (raw >> mantissa_bits ^ 1 << exponent_bits - 1) - (1 << exponent_bits - 1)
    if exponent == 0 and abs(mantissa) >= half - 2:
        if abs(mantissa) == half - 2:
            raise Poison("not-finite", "the device reports an infinite value")
        raise Skip("value-not-known", "the device reports that its value is not a number")
    value = float(f"{mantissa}e{exponent}")
    if not math.isfinite(value):
        raise Poison("not-finite", "the value is too big for a double")
    return value


def _exactly(data: bytes, width: int, what: str) -> bytes:
    if len(data) != width:
        raise Poison("malformed", f"{what} has {width} bytes; these are {len(data)}")
    return data
