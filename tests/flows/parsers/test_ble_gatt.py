"""Values of characteristics: the Bluetooth SIG's formats."""

from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fogline.advertisement import GATT_CONTENT_TYPE, short_uuid
from fogline.errors import Poison
from fogline_cloud.flows.parsers import Reading, Skip
from fogline_cloud.flows.parsers.ble.gatt import DUST, NUMBERS, parse
from fogline_cloud.flows.sandbox.parser_runner import checked


@pytest.fixture
def parsed(make_event):
    def read(number, data):
        subject = number if isinstance(number, str) else short_uuid(number)
        body = data if isinstance(data, bytes) else bytes.fromhex(data)
        return parse(make_event(body, content_type=GATT_CONTENT_TYPE, subject=subject))

    return read


RATE = Reading("heart_rate", 72.0, unit="beat/min")
FEVER = Reading("temperature", 36.4, unit="Cel")
VALUES = [
    (0x2A6E, "6608", "temperature", 21.5, "Cel"),
    (0x2A6E, "9AF7", "temperature", -21.5, "Cel"),
    (0x2A6E, "FF7F", "temperature", 327.67, "Cel"),
    (0x2A6E, "0180", "temperature", -327.67, "Cel"),
    (0x2A6F, "BF13", "humidity", 50.55, "%RH"),
    (0x2A6D, "CD750F00", "pressure", 1013.197, "hPa"),
    (0x2A19, "64", "battery", 100, "%"),
    (0x2A6C, "9CFFFF", "elevation", -1, "m"),
    (0x2A70, "2C01", "true_wind_speed", 3, "m/s"),
    (0x2A71, "50 46", "true_wind_direction", 180, "deg"),
    (0x2A72, "2C01", "apparent_wind_speed", 3, "m/s"),
    (0x2A73, "50 46", "apparent_wind_direction", 180, "deg"),
    (0x2A74, "0F", "gust_factor", 1.5, None),
    (0x2A75, "010000", "pollen_concentration", 1, "1/m3"),
    (0x2A76, "0B", "uv_index", 11, None),
    (0x2A77, "6400", "irradiance", 10, "W/m2"),
    (0x2A78, "0A00", "rainfall", 10, "mm"),
    (0x2A79, "F6", "wind_chill", -10, "Cel"),
    (0x2A7A, "28", "heat_index", 40, "Cel"),
    (0x2A7B, "0A", "dew_point", 10, "Cel"),
    (0x2AE2, "01", "boolean", 1, None),
    (0x2AEA, "0100", "count", 1, None),
    (0x2AEB, "010000", "count", 1, None),
    (0x2AEE, "9600", "current", 1.5, "A"),
    (0x2AF2, "0A0000", "energy", 10, "kWh"),
    (0x2AFB, "102700", "illuminance", 100, "lx"),
    (0x2B05, "0F0000", "power", 1.5, "W"),
    (0x2B0D, "2B", "temperature", 21.5, "Cel"),
    (0x2B18, "4003", "voltage", 13, "V"),
    (0x2B8C, "9001", "co2", 400, "ppm"),
    (0x2BE7, "6400", "voc", 100, "ppb"),
    (0x2BD5, "7080", "pm1", 1120, "ug/m3"),
    (0x2BD6, "0280", "pm2_5", 20, "ug/m3"),
    (0x2BD7, "0C80", "pm10", 120, "ug/m3"),
]


@pytest.mark.parametrize(("number", "data", "metric", "value", "unit"), VALUES)
def test_a_value_is_decoded_by_its_characteristic(parsed, number, data, metric, value, unit):
    assert parsed(number, data) == [Reading(metric, value, unit=unit)]


def test_every_known_characteristic_has_a_sample():
    assert {number for number, *_ in VALUES} == {*NUMBERS, *DUST}


@pytest.mark.parametrize("subject", ["2a6e", "2A6E", "00002a6e", short_uuid(0x2A6E), f"env/{short_uuid(0x2A6E)}"])
def test_the_channel_names_the_characteristic(parsed, subject):
    assert parsed(subject, "6608") == [Reading("temperature", 21.5, unit="Cel")]


@pytest.mark.parametrize("number", [number for number, each in NUMBERS.items() if each.unknown is not None])
def test_a_value_that_is_not_known_is_no_reading(parsed, number):
    each = NUMBERS[number]
    with pytest.raises(Skip) as caught:
        parsed(number, each.unknown.to_bytes(each.width, "little", signed=each.signed))
    assert caught.value.reason == "value-not-known"


@pytest.mark.parametrize(
    ("data", "readings"),
    [
        ("00 6C0100FF", [FEVER]),
        ("01 D50300FF", [Reading("temperature", 36.722222222, unit="Cel")]),
        ("04 6C0100FF 06", [FEVER, Reading("temperature_type", text="mouth")]),
        (
            "06 6C0100FF EA07 0101000000 02",
            [FEVER, Reading("temperature_type", text="body")],
        ),
        ("04 6C0100FF 63", [FEVER]),
    ],
)
def test_a_temperature_measurement_is_decoded(parsed, data, readings):
    assert parsed(0x2A1C, data) == readings


@pytest.mark.parametrize(
    ("data", "readings"),
    [
        ("00 48", [RATE]),
        ("01 4800", [RATE]),
        ("08 48 0A00", [RATE, Reading("energy_expended", 10.0, unit="kJ")]),
        (
            "10 48 0004 0002",
            [RATE, Reading("rr_interval", 1.0, unit="s"), Reading("rr_interval", 0.5, unit="s")],
        ),
    ],
)
def test_a_heart_rate_measurement_is_decoded(parsed, data, readings):
    assert parsed(0x2A37, data) == readings


@pytest.mark.parametrize(
    ("number", "data", "refusal", "reason"),
    [
        (0x2A6E, "66", Poison, "malformed"),
        (0x2A6E, "660800", Poison, "malformed"),
        (0x2A6E, "", Poison, "malformed"),
        (0x2A19, "65", Poison, "out-of-range"),
        (0x2A1C, "", Poison, "malformed"),
        (0x2A1C, "00 6C0100", Poison, "malformed"),
        (0x2A1C, "02 6C0100FF", Poison, "malformed"),
        (0x2A1C, "00 FFFF7F00", Skip, "value-not-known"),
        (0x2A1C, "00 00008000", Skip, "value-not-known"),
        (0x2A1C, "00 01008000", Skip, "value-not-known"),
        (0x2A1C, "00 FEFF7F00", Poison, "not-finite"),
        (0x2A1C, "00 02008000", Poison, "not-finite"),
        (0x2BD6, "FF07", Skip, "value-not-known"),
        (0x2BD6, "FE07", Poison, "not-finite"),
        (0x2A37, "", Poison, "malformed"),
        (0x2A37, "01 48", Poison, "malformed"),
        (0x2A37, "00 48 00", Poison, "malformed"),
        (0x2A37, "10 48 00", Poison, "malformed"),
        (0x2A00, "41", Skip, "unknown-characteristic"),
        ("6e400002-0000-4000-8000-00805f9b0001", "41", Skip, "unknown-characteristic"),
        ("temperature", "6608", Skip, "unknown-characteristic"),
    ],
)
def test_malformed_and_unknown_values_are_refused_with_a_reason(parsed, number, data, refusal, reason):
    with pytest.raises(refusal) as caught:
        parsed(number, data)
    assert caught.value.reason == reason


@given(st.sampled_from([*NUMBERS, *DUST, 0x2A1C, 0x2A37]), st.binary(max_size=20))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_bytes_become_readings_or_a_reason(parsed, number, data):
    with suppress(Skip, Poison):
        assert checked(parsed(number, data))[0]
