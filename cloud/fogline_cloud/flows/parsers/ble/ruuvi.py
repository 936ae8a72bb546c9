"""Ruuvi: manufacturer specific data of company 0x0499 (docs.ruuvi.com, Bluetooth advertisements; formats 3, 5, 6 and E1)."""

import math
from collections.abc import Callable, Iterator

import msgspec

from fogline_cloud.flows.parsers import Leftover, Reading, Skip
from fogline_cloud.flows.parsers.ble.decoding import Broadcast

COMPANY = 0x0499


class _Number(msgspec.Struct, frozen=True):
    """A big-endian number at byte `at`: plus `plus`, times `times`, divided by `per`. `unknown`: number for "not available"."""

    metric: str
    at: int
    width: int
    unknown: int | None = None
    per: int = 1
    unit: str | None = None
    signed: bool = False
    plus: int = 0
    times: int = 1


class _Format(msgspec.Struct, frozen=True):
    length: int
    numbers: tuple[_Number, ...]
    rest: Callable[[bytes], Iterator[Reading]]


def decode(data: bytes, _: Broadcast) -> list[Reading | Leftover]:
    """Decode the values that are available. Raises `Skip` (`ruuvi-format`, `nothing`).

    Data of another length is not Ruuvi's: some Inkbird sensors send their temperature where the company's number belongs, which
    at 11.77 degrees is Ruuvi's number.
    """
    known = _FORMATS.get(data[0]) if data else None
    if known is None or len(data) < known.length:
        raise Skip("ruuvi-format", f"{len(data)} bytes {data[:1].hex()}... are none of Ruuvi's data formats 03, 05, 06 and E1")
    found: list[Reading | Leftover] = [*known.rest(data), *_numbers(known.numbers, data)]
    if not found:
        raise Skip("nothing", "no value is available")
    return found


def _numbers(numbers: tuple[_Number, ...], data: bytes) -> Iterator[Reading]:
    for each in numbers:
        value = int.from_bytes(data[each.at : each.at + each.width], "big", signed=each.signed)
        if value != each.unknown:
            yield Reading(each.metric, (value + each.plus) * each.times / each.per, unit=each.unit)


def _temperature_3(data: bytes) -> Iterator[Reading]:
    """Decode whole degrees, with the sign as the highest bit, and hundredths."""
    whole, hundredths = data[2], data[3]
    if hundredths < 100:
        degrees = (whole & 0x7F) * 100 + hundredths
        yield Reading("temperature", (-degrees if whole & 0x80 else degrees) / 100, unit="Cel")


def _power_5(data: bytes) -> Iterator[Reading]:
    """Decode 11 bits of battery voltage and 5 bits of transmission power."""
    power = int.from_bytes(data[13:15], "big")
    if power >> 5 != 0x7FF:
        yield Reading("voltage", ((power >> 5) + 1600) / 1000, unit="V")
    if power & 0x1F != 0x1F:
        yield Reading("tx_power", (power & 0x1F) * 2.0 - 40, unit="dBm")


_LOG_LUX = math.log(65_536) / 254


def _rest_6(data: bytes) -> Iterator[Reading]:
    yield from _indices(data[11], data[12], data[16])
    if data[13] != 0xFF:
        yield Reading("illuminance", round(math.exp(data[13] * _LOG_LUX) - 1, 2), unit="lx")


def _rest_e1(data: bytes) -> Iterator[Reading]:
    return _indices(data[17], data[18], data[28])


def _indices(voc: int, nox: int, flags: int) -> Iterator[Reading]:
    """Decode two indices of 9 bits; the lowest bit is in the flags. All ones: not available."""
    for metric, high, low in (("voc_index", voc, flags >> 6 & 1), ("nox_index", nox, flags >> 7 & 1)):
        if high << 1 | low != 0x1FF:
            yield Reading(metric, float(high << 1 | low))
    yield Reading("calibrating", float(flags & 1))


_AIR = (
    _Number("temperature", 1, 2, -0x8000, 200, "Cel", signed=True),
    _Number("humidity", 3, 2, 0xFFFF, 400, "%RH"),
    _Number("pressure", 5, 2, 0xFFFF, 100, "hPa", plus=50_000),
)


def _acceleration(at: int) -> tuple[_Number, ...]:
    """Return the three axes, in thousandths of standard gravity (9.80665 m/s2)."""
    return tuple(
        _Number(f"acceleration_{axis}", at + 2 * index, 2, -0x8000, 100_000_000, "m/s2", signed=True, times=980_665)
        for index, axis in enumerate("xyz")
    )


_FORMATS = {
    0x03: _Format(
        14,
        (
            _Number("humidity", 1, 1, None, 2, "%RH"),
            _Number("pressure", 4, 2, None, 100, "hPa", plus=50_000),
            *_acceleration(6),
            _Number("voltage", 12, 2, None, 1000, "V"),
        ),
        _temperature_3,
    ),
    0x05: _Format(
        24,
        (*_AIR, *_acceleration(7), _Number("movement_counter", 15, 1, 0xFF), _Number("measurement_sequence", 16, 2, 0xFFFF)),
        _power_5,
    ),
    0x06: _Format(
        20,
        (
            *_AIR,
            _Number("pm2_5", 7, 2, 0xFFFF, 10, "ug/m3"),
            _Number("co2", 9, 2, 0xFFFF, 1, "ppm"),
            _Number("measurement_sequence", 15, 1),
        ),
        _rest_6,
    ),
    0xE1: _Format(
        40,
        (
            *_AIR,
            _Number("pm1", 7, 2, 0xFFFF, 10, "ug/m3"),
            _Number("pm2_5", 9, 2, 0xFFFF, 10, "ug/m3"),
            _Number("pm4", 11, 2, 0xFFFF, 10, "ug/m3"),
            _Number("pm10", 13, 2, 0xFFFF, 10, "ug/m3"),
            _Number("co2", 15, 2, 0xFFFF, 1, "ppm"),
            _Number("illuminance", 19, 3, 0xFFFFFF, 100, "lx"),
            _Number("measurement_sequence", 25, 3, 0xFFFFFF),
        ),
        _rest_e1,
    ),
}
