"""The values of characteristics, by the Bluetooth SIG's numbers (GATT Specification Supplement, section 3). Tables.

Which value says "value is not known" is in the Supplement with each characteristic.
"""

import msgspec


class Format(msgspec.Struct, frozen=True):
    """A little-endian number of `width` bytes, divided by `per`. `unknown`: the number that says that there is none."""

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
"""By the characteristic's number. Pressure is in tenths of a pascal."""

DUST = {0x2BD5: "pm1", 0x2BD6: "pm2_5", 0x2BD7: "pm10"}
"""A mass concentration in kg/m3, as a medfloat16 (IEEE 11073-20601)."""

TEMPERATURE_MEASUREMENT = 0x2A1C
HEART_RATE_MEASUREMENT = 0x2A37
MAX_PERCENT = 100
BATTERY = 0x2A19
