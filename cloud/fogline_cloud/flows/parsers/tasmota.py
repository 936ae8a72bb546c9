"""Parser `tasmota`: telemetry and responses of Tasmota devices, with units. The last level of the topic decides.

| topic | readings |
|---|---|
| `.../SENSOR`, `STATE`, `RESULT` and others with a JSON object | one for each value, named by its path: `DS18B20.Temperature` |
| `.../LWT` (`Online`, `Offline`) | `available`, 1 or 0 |
| `.../POWER`, `POWER1`, `POWER_LOW` and others with one word | one, named by the last level of the topic |

`ON` and `OFF` are 1 and 0. Temperatures, pressures and speeds have the unit that `TempUnit`, `PressureUnit` or `SpeedUnit` of
the message names; without it, the unit is not known. Other quantities have the unit that Tasmota documents. An element of an
array is a reading of its own: `ENERGY.Power.0` is the first phase.

`Time` is the time of the readings if it has an offset (Tasmota's `SetOption52 1`). Without one it is local time, which no
reading gets.

Not understood: a null (Tasmota's value of a sensor that does not respond), and a known quantity that is no number.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress

from fogline.errors import Poison
from fogline.events.event import Event, parse_rfc3339
from fogline_cloud.flows.parsers import Leftover, Reading
from fogline_cloud.flows.parsers.json_leaves import NUMBER, Path, leaves, quantity_name, reading_of
from fogline_cloud.flows.parsers.strict_json import Json, loads

_AVAILABLE = {b"Online": 1.0, b"Offline": 0.0}
_UNIT_MEMBERS = {
    "TempUnit": {"C": "Cel", "F": "degF", "K": "K"},
    "PressureUnit": {"hPa": "hPa", "mmHg": "mmHg", "inHg": "inHg"},
    "SpeedUnit": {"m/s": "m/s", "km/h": "km/h", "kn": "kn", "mph": "mph", "ft/s": "ft/s", "yd/s": "yd/s"},
}
_UNIT_MEMBER_OF = {
    **dict.fromkeys(("Temperature", "DewPoint", "HeatIndex", "FeelsLike"), "TempUnit"),
    **dict.fromkeys(("Pressure", "SeaPressure"), "PressureUnit"),
    "Speed": "SpeedUnit",
}
_UNITS = {
    "ApparentPower": "VA",
    "Battery": "%",
    "CarbonDioxide": "ppm",
    "Current": "A",
    "Distance": "cm",
    "ExportActive": "kWh",
    "ExportReactive": "kvarh",
    "Factor": "/",
    "Frequency": "Hz",
    "Humidity": "%RH",
    "Illuminance": "lx",
    "ImportActive": "kWh",
    "ImportReactive": "kvarh",
    "Moisture": "%",
    "PhaseAngle": "deg",
    "Power": "W",
    "ReactivePower": "var",
    "TVOC": "ppb",
    "UptimeSec": "s",
    "Vcc": "V",
    "Voltage": "V",
    "eCO2": "ppm",
    **dict.fromkeys(("PM1", "PM2.5", "PM10", "CF1", "CF2.5", "CF10"), "ug/m3"),
}
_UNITS_BELOW: dict[str, str | None] = {  # by the last two names of the path, for words that mean other things elsewhere
    "ENERGY.Total": "kWh",
    "ENERGY.Today": "kWh",
    "ENERGY.Yesterday": "kWh",
    "ENERGY.Period": "Wh",
    "Status.Power": None,
    "Wifi.RSSI": "%",
    "Wifi.Signal": "dBm",
}
_WORD = re.compile(r"[\x20-\x7e]{1,64}")


def parse(event: Event) -> Iterator[Reading | Leftover]:
    """Parse one event. Raises `Poison` (`malformed`, `too-deep`, those of `strict_json`)."""
    last = event.subject.rpartition("/")[2]
    if last == "LWT":
        if event.data not in _AVAILABLE:
            raise Poison("malformed", "a last will is neither Online nor Offline")
        return iter([Reading("available", _AVAILABLE[event.data])])
    if event.data.lstrip()[:1] == b"{":
        return _document(loads(event.data))
    return iter([_word(last, event.data)])


def _word(name: str, data: bytes) -> Reading | Leftover:
    text = data.decode("utf-8", "replace")
    if _WORD.fullmatch(text) is None:
        raise Poison("malformed", "neither a JSON object nor one line of up to 64 characters")
    value = float(text) if NUMBER.fullmatch(text) else text
    return reading_of((name or "value",), value, unit=None, numeric=False, time_ns=None)


def _document(document: Json) -> Iterator[Reading | Leftover]:
    every = list(leaves(document))
    units = {path: leaf for path, leaf in every if path[-1] in _UNIT_MEMBERS and isinstance(leaf, str)}
    time_ns = next((_time_ns(leaf) for path, leaf in every if path[-1] == "Time"), None)
    for path, leaf in every:
        if path[-1] == "Time" and isinstance(leaf, str):
            continue
        if path in units:
            if leaf not in _UNIT_MEMBERS[path[-1]]:
                yield Leftover(".".join(path), "an unknown unit")
            continue
        name = quantity_name(path)
        numeric = name in _UNITS or name in _UNIT_MEMBER_OF
        yield reading_of(path, leaf, unit=_unit(path, name, units), numeric=numeric, time_ns=time_ns)


def _unit(path: Path, name: str, units: Mapping[Path, Json]) -> str | None:
    member = _UNIT_MEMBER_OF.get(name)
    if member is None:
        named = [each for each in path if not each.isdecimal()]
        return _UNITS_BELOW.get(".".join(named[-2:]), _UNITS.get(name))
    for length in range(len(path) - 1, -1, -1):
        given = units.get((*path[:length], member))
        if isinstance(given, str):
            return _UNIT_MEMBERS[member].get(given)
    return None


def _time_ns(time: Json) -> int | None:
    with suppress(ValueError, OverflowError, TypeError):
        return parse_rfc3339(time) if isinstance(time, str) else None
    return None
