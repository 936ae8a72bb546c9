"""Parser `zigbee2mqtt`: the state of a Zigbee device as Zigbee2MQTT publishes it, with units.

| body | readings |
|---|---|
| a JSON object (`zigbee2mqtt/{name}`) | one for each value, named by its path (`temperature`, `color.x`) |
| one value (`zigbee2mqtt/{name}/{attribute}`, with `output: attribute`) | one, named by the last level of the topic |
| a description of a device (type `device`) | none: it is in the registry |
| `online`, `offline`, or `{"state": ...}` of these (topic `.../availability`) | `available`, 1 or 0 |

`last_seen` (RFC 3339, or milliseconds since 1970) is the time of the readings. `ON`, `OFF`, `true` and `false` are 1 and 0. A
null gives no reading: the bridge does not know the value yet. `voltage` is in mV beside `battery`, and in V beside `power` or
`current`; otherwise its unit is not known.

Units follow the definitions of the devices ("exposes") of zigbee-herdsman-converters. A message does not contain them, so a
device that differs gets the usual unit. A known quantity that is no number is not understood.
"""

import re
from collections.abc import Iterator

from fogline.errors import Poison
from fogline.events.device_report import AVAILABILITY, DESCRIPTION
from fogline.events.event import Event, parse_rfc3339
from fogline_cloud.flows.parsers import Leftover, Reading
from fogline_cloud.flows.parsers.json_leaves import leaves, quantity_name, reading_of
from fogline_cloud.flows.parsers.strict_json import Json, loads

_UNITS = {
    **dict.fromkeys(
        (
            "temperature",
            "local_temperature",
            "device_temperature",
            "external_temperature",
            "current_heating_setpoint",
            "occupied_heating_setpoint",
            "unoccupied_heating_setpoint",
            "occupied_cooling_setpoint",
            "local_temperature_calibration",
        ),
        "Cel",
    ),
    "humidity": "%RH",
    **dict.fromkeys(("battery", "soil_moisture", "position", "tilt", "pi_heating_demand", "valve_position"), "%"),
    "pressure": "hPa",
    **dict.fromkeys(("illuminance", "illuminance_lux"), "lx"),
    "power": "W",
    "power_reactive": "var",
    "power_apparent": "VA",
    **dict.fromkeys(("energy", "produced_energy"), "kWh"),
    "current": "A",
    "ac_frequency": "Hz",
    **dict.fromkeys(("co2", "eco2"), "ppm"),
    **dict.fromkeys(("pm1", "pm25", "pm10"), "ug/m3"),
}
_NO_UNIT = {"linkquality", "brightness", "color_temp", "voltage"}
_ENDPOINT = re.compile(r"_(l[0-9]+|[0-9]+|left|right|center|top|bottom|phase_[abc])$")
_AVAILABLE = {"online": 1.0, "offline": 0.0}


def parse(event: Event) -> Iterator[Reading | Leftover]:
    """Parse one event. Raises `Poison` (`malformed`, `too-deep`, those of `strict_json`)."""
    topic, _, last = event.subject.rpartition("/")
    if event.type == DESCRIPTION:
        return iter(())
    if event.type == AVAILABILITY or last == "availability":
        return iter([_availability(event.data)])
    if event.data.lstrip()[:1] != b"{":
        return iter([_attribute(last or topic, event.data)])
    return _state(loads(event.data))


def _availability(data: bytes) -> Reading:
    state = loads(data) if data.lstrip()[:1] == b"{" else data.decode("utf-8", "replace")
    if isinstance(state, dict):
        state = state.get("state")
    if not isinstance(state, str) or state not in _AVAILABLE:
        raise Poison("malformed", "an availability is neither online nor offline")
    return Reading("available", _AVAILABLE[state])


def _attribute(name: str, data: bytes) -> Reading | Leftover:
    try:
        value = loads(data)
    except Poison:
        value = data.decode("utf-8", "replace")
    if isinstance(value, list):
        return Leftover(name, "an array")
    return reading_of((name,), value, unit=_unit(name, {}), numeric=_is_numeric(name), time_ns=None)


def _state(state: Json) -> Iterator[Reading | Leftover]:
    members = state if isinstance(state, dict) else {}
    time_ns = _time_ns(members.get("last_seen"))
    for path, leaf in leaves(state):
        if leaf is None or (path == ("last_seen",) and time_ns is not None):
            continue
        if path == ("last_seen",):
            yield Leftover("last_seen", "neither RFC 3339 with an offset nor milliseconds")
            continue
        name = quantity_name(path)
        yield reading_of(path, leaf, unit=_unit(name, members), numeric=_is_numeric(name), time_ns=time_ns)


def _base(name: str) -> str:
    return _ENDPOINT.sub("", name)


def _is_numeric(name: str) -> bool:
    return _base(name) in _UNITS or _base(name) in _NO_UNIT


def _unit(name: str, members: dict[str, Json]) -> str | None:
    if _base(name) != "voltage":
        return _UNITS.get(_base(name))
    on_battery, on_mains = "battery" in members, not members.keys().isdisjoint(("power", "current"))
    if on_battery == on_mains:
        return None
    return "mV" if on_battery else "V"


def _time_ns(last_seen: Json) -> int | None:
    """Return `last_seen` in nanoseconds, `None` if it is absent or has another form."""
    if isinstance(last_seen, str):
        try:
            return parse_rfc3339(last_seen)
        except (ValueError, OverflowError):
            return None
    if isinstance(last_seen, bool) or not isinstance(last_seen, int | float) or not 0 <= last_seen < _MAX_MS:
        return None
    return round(last_seen) * 1_000_000


_MAX_MS = 253_402_300_800_000  # the year 10000
