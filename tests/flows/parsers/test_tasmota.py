"""Bodies as the documentation of Tasmota and its users show them."""

from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fogline.errors import Poison
from fogline.events.event import Event
from fogline_cloud.flows.parsers import Leftover, Reading
from fogline_cloud.flows.parsers.tasmota import parse
from fogline_cloud.flows.sandbox.parser_runner import checked
from property_tests import at_most

MakeEvent = Callable[..., Event]
TIME_NS = 1_583_193_600_000_000_000


@pytest.mark.parametrize(
    ("body", "returned"),
    [
        ('{"Time":"2017-02-16T10:13:52","DS18B20":{"Temperature":20.6}}', [Reading("DS18B20.Temperature", 20.6)]),
        (
            '{"Time":"2020-01-01T00:00:00","AHT1X-0x38":{"Temperature":24.7,"Humidity":61.9,"DewPoint":16.8},"TempUnit":"C"}',
            [
                Reading("AHT1X-0x38.Temperature", 24.7, unit="Cel"),
                Reading("AHT1X-0x38.Humidity", 61.9, unit="%RH"),
                Reading("AHT1X-0x38.DewPoint", 16.8, unit="Cel"),
            ],
        ),
        (
            '{"BME280":{"Temperature":73.4,"Pressure":1014.0},"SGP30":{"eCO2":584,"TVOC":263},"PressureUnit":"hPa","TempUnit":"F"}',
            [
                Reading("BME280.Temperature", 73.4, unit="degF"),
                Reading("BME280.Pressure", 1014.0, unit="hPa"),
                Reading("SGP30.eCO2", 584.0, unit="ppm"),
                Reading("SGP30.TVOC", 263.0, unit="ppb"),
            ],
        ),
        (
            '{"ENERGY":{"TotalStartTime":"2018-11-23T15:33:47","Total":3.185,"Power":[1,2],"Factor":0.39,"Voltage":221}}',
            [
                Reading("ENERGY.TotalStartTime", text="2018-11-23T15:33:47"),
                Reading("ENERGY.Total", 3.185, unit="kWh"),
                Reading("ENERGY.Power.0", 1.0, unit="W"),
                Reading("ENERGY.Power.1", 2.0, unit="W"),
                Reading("ENERGY.Factor", 0.39, unit="/"),
                Reading("ENERGY.Voltage", 221.0, unit="V"),
            ],
        ),
        (
            '{"StatusSNS":{"Time":"2018-02-07T20:16:19","DHT11":{"Temperature":78.8},"TempUnit":"F"}}',
            [Reading("StatusSNS.DHT11.Temperature", 78.8, unit="degF")],
        ),
        (
            '{"Time":"2020-03-03T00:00:00+00:00","TX23":{"Speed":{"Act":14.8}},"Speed":5,"SpeedUnit":"km/h"}',
            [Reading("TX23.Speed.Act", 14.8, time_ns=TIME_NS), Reading("Speed", 5.0, unit="km/h", time_ns=TIME_NS)],
        ),
        (
            '{"UptimeSec":1500,"Vcc":3.504,"POWER":"OFF","Wifi":{"SSId":"home","RSSI":100,"Signal":-50}}',
            [
                Reading("UptimeSec", 1500.0, unit="s"),
                Reading("Vcc", 3.504, unit="V"),
                Reading("POWER", 0.0),
                Reading("Wifi.SSId", text="home"),
                Reading("Wifi.RSSI", 100.0, unit="%"),
                Reading("Wifi.Signal", -50.0, unit="dBm"),
            ],
        ),
        (
            '{"DS18B20":{"Temperature":null},"AM2301":{"Humidity":"wet"},"TempUnit":"R"}',
            [
                Leftover("DS18B20.Temperature", "no value"),
                Leftover("AM2301.Humidity", "a text instead of a number"),
                Leftover("TempUnit", "an unknown unit"),
            ],
        ),
        (
            '{"Status":{"Power":0,"FriendlyName":["a"]}}',
            [Reading("Status.Power", 0.0), Reading("Status.FriendlyName.0", text="a")],
        ),
    ],
)
def test_a_document_becomes_readings_with_the_units_that_it_names(
    make_event: MakeEvent, body: str, returned: list[Reading | Leftover]
) -> None:
    assert list(parse(make_event(body.encode(), subject="tele/plug-1/SENSOR"))) == returned


@pytest.mark.parametrize(
    ("topic", "body", "reading"),
    [
        ("tele/plug-1/LWT", b"Online", Reading("available", 1.0)),
        ("tele/plug-1/LWT", b"Offline", Reading("available", 0.0)),
        ("stat/plug-1/POWER1", b"ON", Reading("POWER1", 1.0)),
        ("tele/plug-1/POWER_LOW", b"OFF", Reading("POWER_LOW", 0.0)),
        ("stat/plug-1/DIMMER", b"75", Reading("DIMMER", 75.0)),
        ("stat/plug-1/SSID", b"home", Reading("SSID", text="home")),
    ],
)
def test_a_word_is_a_reading_named_by_its_topic(make_event: MakeEvent, topic: str, body: bytes, reading: Reading) -> None:
    assert list(parse(make_event(body, subject=topic, content_type="text/plain"))) == [reading]


@pytest.mark.parametrize(
    ("topic", "body"),
    [
        ("tele/a/LWT", b"Maybe"),
        ("tele/a/SENSOR", b'{"a":'),
        ("tele/a/SENSOR", b"\x00"),
        ("tele/a/SENSOR", b"x" * 65),
    ],
)
def test_unreadable_message_is_poison(make_event: MakeEvent, topic: str, body: bytes) -> None:
    with pytest.raises(Poison):
        checked(parse(make_event(body, subject=topic)))


@given(st.binary(max_size=100), st.sampled_from(["tele/a/LWT", "tele/a/SENSOR", ""]))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=at_most(100))
def test_hostile_bytes_give_readings_or_poison(make_event: MakeEvent, body: bytes, subject: str) -> None:
    for each in (b"{" + body, body):
        with suppress(Poison):
            checked(parse(make_event(each, subject=subject)))
