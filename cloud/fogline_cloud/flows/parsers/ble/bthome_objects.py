"""The objects of BTHome v2 (bthome.io/format): what each means. Tables only."""

from enum import Enum, auto

import msgspec


class Kind(Enum):
    """How an object's bytes are read, where they are not a number."""

    NUMBER = auto()
    FLAG = auto()
    BUTTON = auto()
    DIMMER = auto()
    COMMAND = auto()
    TEXT = auto()
    RAW = auto()
    VERSION = auto()


class Object(msgspec.Struct, frozen=True):
    """A number of `width` bytes, little endian, times `times`, divided by `per`. `width` 0: a length stands before it."""

    metric: str
    width: int = 1
    per: int = 1
    unit: str | None = None
    signed: bool = False
    times: int = 1
    kind: Kind = Kind.NUMBER


_FLAGS = {
    0x0F: "generic", 0x10: "power_on", 0x11: "opening", 0x15: "battery_low", 0x16: "battery_charging",
    0x17: "carbon_monoxide", 0x18: "cold", 0x19: "connectivity", 0x1A: "door", 0x1B: "garage_door",
    0x1C: "gas_detected", 0x1D: "heat", 0x1E: "light", 0x1F: "lock", 0x20: "moisture_detected", 0x21: "motion",
    0x22: "moving", 0x23: "occupancy", 0x24: "plug", 0x25: "presence", 0x26: "problem", 0x27: "running",
    0x28: "safety", 0x29: "smoke", 0x2A: "sound", 0x2B: "tamper", 0x2C: "vibration", 0x2D: "window",
}  # fmt: skip
"""Yes or no: 1 or 0. Those that are also the name of a measured value have a word behind them here."""

OBJECTS: dict[int, Object] = {
    **{number: Object(metric, kind=Kind.FLAG) for number, metric in _FLAGS.items()},
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
    0x3A: Object("button", 1, kind=Kind.BUTTON),
    0x3B: Object("command", 0, kind=Kind.COMMAND),
    0x3C: Object("dimmer", 2, kind=Kind.DIMMER),
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
    0x53: Object("text", 0, kind=Kind.TEXT),
    0x54: Object("raw", 0, kind=Kind.RAW),
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
    0xF1: Object("firmware_version", 4, kind=Kind.VERSION),
    0xF2: Object("firmware_version", 3, kind=Kind.VERSION),
}
"""By the object's id."""

BUTTONS = {
    0x01: "press", 0x02: "double_press", 0x03: "triple_press", 0x04: "long_press", 0x05: "long_double_press",
    0x06: "long_triple_press", 0x80: "hold_press", 0x81: "hold_release", 0xFE: "hold_press",
}  # fmt: skip
"""0: nothing happened. 0xFE is what Shelly's firmware before 1.0.20 says."""
COMMANDS = {0x00: "off", 0x01: "on", 0x02: "toggle", 0x03: "step_up", 0x04: "step_down"}
DIMMER_LEFT, DIMMER_RIGHT = 0x01, 0x02
COMMAND_LENGTH = 0x1F
"""Of the byte before a command: how many arguments follow its opcode; the other bits are reserved."""
