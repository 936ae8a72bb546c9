"""Parser `ble-gatt`: the value of a characteristic; the event's subject is its UUID."""

import math
import re

from fogline.errors import Poison
from fogline.event import Event
from fogline_cloud.flows.parsers import Reading, Skip
from fogline_cloud.flows.parsers.ble.gatt_formats import (
    BATTERY,
    DUST,
    HEART_RATE_MEASUREMENT,
    MAX_PERCENT,
    NUMBERS,
    TEMPERATURE_MEASUREMENT,
    Format,
)

_UUID16 = re.compile(r"(?:0000)?([0-9a-f]{4})(?:-0000-1000-8000-00805f9b34fb)?", re.IGNORECASE)
_FAHRENHEIT, _HAS_TIME, _HAS_TYPE = 0x01, 0x02, 0x04
_TIME_BYTES = 7
_HEART_16_BIT, _HAS_ENERGY, _HAS_INTERVALS = 0x01, 0x08, 0x10
_INTERVALS_PER_SECOND = 1024
_PLACES = {
    1: "armpit", 2: "body", 3: "ear", 4: "finger", 5: "gastro-intestinal tract", 6: "mouth", 7: "rectum", 8: "toe",
    9: "tympanum",
}  # fmt: skip
"""Temperature Type (0x2A1D)."""


def parse(event: Event) -> list[Reading]:
    """The readings of one value.

    Raises `Skip` (`unknown-characteristic`, `value-not-known`) and `Poison` (`malformed`, `out-of-range`, `not-finite`).
    """
    number = _number(event.subject)
    if number in NUMBERS:
        return [_read(NUMBERS[number], number, event.data)]
    if number in DUST:
        kilograms = _float(_exactly(event.data, 2, DUST[number]), 12, 4)
        return [Reading(DUST[number], round(kilograms * 1e9, 6), unit="ug/m3")]
    if number == TEMPERATURE_MEASUREMENT:
        return _temperature_measurement(event.data)
    if number == HEART_RATE_MEASUREMENT:
        return _heart_rate(event.data)
    raise Skip("unknown-characteristic", f"the format of characteristic {event.subject[:64]!a} is not known")


def _number(subject: str) -> int:
    """The SIG's number of a UUID, short or in full; what the channel says before the UUID is passed over."""
    found = _UUID16.fullmatch(subject.rpartition("/")[2])
    return -1 if found is None else int(found[1], 16)


def _read(known: Format, number: int, data: bytes) -> Reading:
    value = int.from_bytes(_exactly(data, known.width, known.metric), "little", signed=known.signed)
    if value == known.unknown:
        raise Skip("value-not-known", f"the device says that it does not know its {known.metric}")
    if number == BATTERY and value > MAX_PERCENT:
        raise Poison("out-of-range", f"a battery level of {value} %")
    return Reading(known.metric, value / known.per, unit=known.unit)


def _temperature_measurement(data: bytes) -> list[Reading]:
    """0x2A1C: flags, a FLOAT, then a time and where it was taken, if the flags say so."""
    flags = data[0] if data else 0
    wanted = 5 + (_TIME_BYTES if flags & _HAS_TIME else 0) + (1 if flags & _HAS_TYPE else 0)
    _exactly(data, wanted, "a temperature measurement")
    value = _float(data[1:5], 24, 8)
    readings = [Reading("temperature", round((value - 32) / 1.8, 9) if flags & _FAHRENHEIT else value, unit="Cel")]
    if flags & _HAS_TYPE and data[-1] in _PLACES:
        readings.append(Reading("temperature_type", text=_PLACES[data[-1]]))
    return readings


def _heart_rate(data: bytes) -> list[Reading]:
    """0x2A37: flags, the rate, then the energy expended and intervals between beats, if the flags say so."""
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
    """FLOAT and SFLOAT of IEEE 11073-20601: an exponent of ten over a mantissa, both two's complement.

    Raises `Skip('value-not-known')` for NaN and NRes, and `Poison('not-finite')` for an infinity.
    """
    raw = int.from_bytes(data, "little")
    half = 1 << mantissa_bits - 1
    mantissa = (raw & 2 * half - 1 ^ half) - half
    exponent = (raw >> mantissa_bits ^ 1 << exponent_bits - 1) - (1 << exponent_bits - 1)
    if exponent == 0 and abs(mantissa) >= half - 2:
        if abs(mantissa) == half - 2:
            raise Poison("not-finite", "the device says that its value is infinite")
        raise Skip("value-not-known", "the device says that its value is not a number")
    value = float(f"{mantissa}e{exponent}")
    if not math.isfinite(value):
        raise Poison("not-finite", "the value is too big for a double")
    return value


def _exactly(data: bytes, width: int, what: str) -> bytes:
    if len(data) != width:
        raise Poison("malformed", f"{what} has {width} bytes; these are {len(data)}")
    return data
