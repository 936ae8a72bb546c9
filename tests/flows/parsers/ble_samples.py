"""Samples that makers and standards publish of Bluetooth devices: bytes and their values."""

BTHOME_KEY = bytes.fromhex("231d39c1d7cc1ab1aee224cd096db932")
BTHOME_ADDRESS = "54:48:E6:8F:80:A5"
BTHOME_ENCRYPTED = bytes.fromhex("41 e445f3c9962b 33221100 6c7c4519")
"""bthome.io, Encryption."""

BTHOME_NUMBERS = {
    "518756": ("acceleration", 22.151, "m/s2"),
    "630057D0FF": ("acceleration", -3.123456, "m/s2"),
    "0161": ("battery", 97, "%"),
    "6001": ("channel", 1, None),
    "12E204": ("co2", 1250, "ppm"),
    "56E803": ("conductivity", 1000, "uS/cm"),
    "0960": ("count", 96, None),
    "3D0960": ("count", 24585, None),
    "3E2A2C0960": ("count", 1611213866, None),
    "59EA": ("count", -22, None),
    "5AEAEA": ("count", -5398, None),
    "5BEA0234EA": ("count", -365690134, None),
    "434E34": ("current", 13.39, "A"),
    "5D02EA": ("current", -5.63, "A"),
    "08CA06": ("dew_point", 17.38, "Cel"),
    "5E9F8C": ("direction", 359.99, "deg"),
    "400C00": ("distance", 12, "mm"),
    "414E00": ("distance", 7.8, "m"),
    "424E3400": ("duration", 13.390, "s"),
    "4d12138a14": ("energy", 344593.170, "kWh"),
    "0A138A14": ("energy", 1346.067, "kWh"),
    "4B138A14": ("gas", 1346.067, "m3"),
    "4C41018A01": ("gas", 25821.505, "m3"),
    "528756": ("gyroscope", 22.151, "deg/s"),
    "03BF13": ("humidity", 50.55, "%RH"),
    "2E23": ("humidity", 35, "%RH"),
    "05138A14": ("illuminance", 13460.67, "lx"),
    "6402": ("light_level", 2, None),
    "065E1F": ("mass", 80.3, "kg"),
    "073E1D": ("mass", 74.86, "lb"),
    "14020C": ("moisture", 30.74, "%"),
    "2F23": ("moisture", 35, "%"),
    "0D120C": ("pm2_5", 3090, "ug/m3"),
    "0E021C": ("pm10", 7170, "ug/m3"),
    "0B021B00": ("power", 69.14, "W"),
    "5C02FBFFFF": ("power", -12.78, "W"),
    "5FA00F": ("precipitation", 400.0, "mm"),
    "04138A01": ("pressure", 1008.83, "hPa"),
    "3F020C": ("rotation", 307.4, "deg"),
    "61AC0D": ("rotational_speed", 3500, "1/min"),
    "6503": ("settings_revision", 3, None),
    "444E34": ("speed", 133.90, "m/s"),
    "624099DFFF": ("speed", -2.123456, "m/s"),
    "57EA": ("temperature", -22, "Cel"),
    "58EA": ("temperature", -7.7, "Cel"),
    "451101": ("temperature", 27.3, "Cel"),
    "02CA09": ("temperature", 25.06, "Cel"),
    "505d396164": ("timestamp", 1684093277, "s"),
    "133301": ("tvoc", 307, "ug/m3"),
    "0C020C": ("voltage", 3.074, "V"),
    "4A020C": ("voltage", 307.4, "V"),
    "4E87562A01": ("volume", 19551.879, "l"),
    "478756": ("volume", 2215.1, "l"),
    "48DC87": ("volume", 34780, "ml"),
    "5587562A01": ("volume_storage", 19551.879, "l"),
    "49DC87": ("volume_flow_rate", 34.780, "m3/h"),
    "4632": ("uv_index", 5.0, None),
    "4F87562A01": ("water", 19551.879, "l"),
    "F00100": ("device_type", 1, None),
    "0009": ("packet_id", 9, None),
    "1501": ("battery_low", 1, None),
    "1601": ("battery_charging", 1, None),
    "1700": ("carbon_monoxide", 0, None),
    "1801": ("cold", 1, None),
    "1900": ("connectivity", 0, None),
    "1A00": ("door", 0, None),
    "1B01": ("garage_door", 1, None),
    "1C01": ("gas_detected", 1, None),
    "0F01": ("generic", 1, None),
    "1D00": ("heat", 0, None),
    "1E01": ("light", 1, None),
    "1F01": ("lock", 1, None),
    "2001": ("moisture_detected", 1, None),
    "2100": ("motion", 0, None),
    "2201": ("moving", 1, None),
    "2301": ("occupancy", 1, None),
    "1100": ("opening", 0, None),
    "2400": ("plug", 0, None),
    "1001": ("power_on", 1, None),
    "2500": ("presence", 0, None),
    "2601": ("problem", 1, None),
    "2701": ("running", 1, None),
    "2800": ("safety", 0, None),
    "2901": ("smoke", 1, None),
    "2A00": ("sound", 0, None),
    "2B00": ("tamper", 0, None),
    "2C01": ("vibration", 1, None),
    "2D01": ("window", 1, None),
    "3C0103": ("dimmer", -3, None),
    "3C020A": ("dimmer", 10, None),
}
"""bthome.io, Format: every row of its tables that is a number."""

BTHOME_TEXTS = {
    "540C48656C6C6F20576F726C6421": [("raw", "48656c6c6f20576f726c6421")],
    "530C48656C6C6F20576F726C6421": [("text", "Hello World!")],
    "3A01": [("button", "press")],
    "3A02": [("button", "double_press")],
    "3A03": [("button", "triple_press")],
    "3A04": [("button", "long_press")],
    "3A05": [("button", "long_double_press")],
    "3A06": [("button", "long_triple_press")],
    "3A80": [("button", "hold_press")],
    "3B0000": [("command", "off")],
    "3B0001": [("command", "on")],
    "3B0002": [("command", "toggle")],
    "3B010305": [("command", "step_up"), ("command_arguments", "05")],
    "3B010405": [("command", "step_down"), ("command_arguments", "05")],
    "F100010204": [("firmware_version", "4.2.1.0")],
    "F2000106": [("firmware_version", "6.1.0")],
}
"""bthome.io, Format: the other rows."""

_AXES = ("acceleration_x", "acceleration_y", "acceleration_z")


def _in_g(*values):
    """Convert Ruuvi's samples from g to m/s2 as the format has it: thousandths, 9.80665 m/s2 each thousand."""
    return {axis: round(value * 1000) * 980_665 / 100_000_000 for axis, value in zip(_AXES, values, strict=True)}


RUUVI = {
    "3 valid": (
        "03291A1ECE1EFC18F94202CA0B53",
        {"humidity": 20.5, "temperature": 26.3, "pressure": 1027.66, **_in_g(-1.0, -1.726, 0.714), "voltage": 2.899},
    ),
    "3 maximum": (
        "03FF7F63FFFF7FFF7FFF7FFFFFFF",
        {"humidity": 127.5, "temperature": 127.99, "pressure": 1155.35, **_in_g(32.767, 32.767, 32.767), "voltage": 65.535},
    ),
    "3 minimum": (
        "0300FF6300008001800180010000",
        {"humidity": 0, "temperature": -127.99, "pressure": 500, **_in_g(-32.767, -32.767, -32.767), "voltage": 0},
    ),
    "5 valid": (
        "0512FC5394C37C0004FFFC040CAC364200CDCBB8334C884F",
        {
            "temperature": 24.3, "pressure": 1000.44, "humidity": 53.49, **_in_g(0.004, -0.004, 1.036), "tx_power": 4,
            "voltage": 2.977, "movement_counter": 66, "measurement_sequence": 205,
        },
    ),
    "5 maximum": (
        "057FFFFFFEFFFE7FFF7FFF7FFFFFDEFEFFFECBB8334C884F",
        {
            "temperature": 163.835, "pressure": 1155.34, "humidity": 163.835, **_in_g(32.767, 32.767, 32.767),
            "tx_power": 20, "voltage": 3.646, "movement_counter": 254, "measurement_sequence": 65534,
        },
    ),
    "5 minimum": (
        "058001000000008001800180010000000000CBB8334C884F",
        {
            "temperature": -163.835, "pressure": 500, "humidity": 0, **_in_g(-32.767, -32.767, -32.767), "tx_power": -40,
            "voltage": 1.6, "movement_counter": 0, "measurement_sequence": 0,
        },
    ),
    "6 valid": (
        "06170C5668C79E007000C90501D9FFCD004C884F",
        {
            "temperature": 29.5, "pressure": 1011.02, "humidity": 55.3, "pm2_5": 11.2, "co2": 201, "voc_index": 10,
            "nox_index": 2, "illuminance": 13026.67, "measurement_sequence": 205, "calibrating": 0,
        },
    ),
    "6 maximum": (
        "067FFF9C40FFFE27109C40FAFAFEFFFF074C8F4F",
        {
            "temperature": 163.835, "pressure": 1155.34, "humidity": 100, "pm2_5": 1000, "co2": 40000, "voc_index": 500,
            "nox_index": 500, "illuminance": 65535, "measurement_sequence": 255, "calibrating": 1,
        },
    ),
    "6 minimum": (
        "0680010000000000000000000000FF00004C884F",
        {
            "temperature": -163.835, "pressure": 500, "humidity": 0, "pm2_5": 0, "co2": 0, "voc_index": 0, "nox_index": 0,
            "illuminance": 0, "measurement_sequence": 0, "calibrating": 0,
        },
    ),
    "6 invalid": ("068000FFFFFFFFFFFFFFFFFFFFFF00FFFFFFFFFF", {"measurement_sequence": 255, "calibrating": 1}),
    "E1 valid": (
        "E1170C5668C79E0065007004BD11CA00C90A0213E0AC000000DECDEE100000000000CBB8334C884F",
        {
            "temperature": 29.5, "pressure": 1011.02, "humidity": 55.3, "pm1": 10.1, "pm2_5": 11.2, "pm4": 121.3,
            "pm10": 455.4, "co2": 201, "voc_index": 20, "nox_index": 4, "illuminance": 13027,
            "measurement_sequence": 14601710, "calibrating": 0,
        },
    ),
    "E1 maximum": (
        "E17FFF9C40FFFE27102710271027109C40FAFADC28F0000000FFFFFE3F0000000000CBB8334C884F",
        {
            "temperature": 163.835, "pressure": 1155.34, "humidity": 100, "pm1": 1000, "pm2_5": 1000, "pm4": 1000,
            "pm10": 1000, "co2": 40000, "voc_index": 500, "nox_index": 500, "illuminance": 144284,
            "measurement_sequence": 16777214, "calibrating": 1,
        },
    ),
    "E1 minimum": (
        "E1800100000000000000000000000000000000000000000000000000000000000000CBB8334C884F",
        {
            "temperature": -163.835, "pressure": 500, "humidity": 0, "pm1": 0, "pm2_5": 0, "pm4": 0, "pm10": 0, "co2": 0,
            "voc_index": 0, "nox_index": 0, "illuminance": 0, "measurement_sequence": 0, "calibrating": 0,
        },
    ),
}  # fmt: skip
"""docs.ruuvi.com: the test vectors of each format, pressure in hPa, voltage in V."""

RUUVI_5_INVALID = "058000FFFFFFFF800080008000FFFFFFFFFFFFFFFFFFFFFF"
"""No value at all is known."""

IBEACON = "0215 E2C56DB5DFFB48D2B060D0F5A71096E0 0001 0002 C5"
"""Apple's AirLocate sample's UUID."""
EDDYSTONE_TLM = "2000 0bb8 1580 0000000a 00000064"
