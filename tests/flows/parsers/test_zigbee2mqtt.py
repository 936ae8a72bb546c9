"""Bodies as the documentation and the logs of Zigbee2MQTT show them."""

from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fogline.errors import Poison
from fogline.events.event import Event
from fogline_cloud.flows.parsers import Leftover, Reading, Skip
from fogline_cloud.flows.parsers.zigbee2mqtt import parse
from fogline_cloud.flows.sandbox.parser_runner import checked
from property_tests import at_most

MakeEvent = Callable[..., Event]
SEEN_NS = 1_547_300_495_890_000_000


def test_description_of_a_device_gives_no_readings(make_event):
    event = make_event(subject="zigbee2mqtt/bridge/devices", type="device", data=b'{"name":"plug","model":"ZNCZ02LM"}')
    assert list(parse(event)) == []


@pytest.mark.parametrize(
    ("body", "returned"),
    [
        (
            '{"temperature": 27.34, "humidity": 44.72}',
            [Reading("temperature", 27.34, unit="Cel"), Reading("humidity", 44.72, unit="%RH")],
        ),
        ('{"action": "single"}', [Reading("action", text="single")]),
        ('{"occupancy": true}', [Reading("occupancy", 1.0)]),
        (
            '{"state": "ON", "brightness": 215, "color": {"x": 0.1, "y": 0.2}, "color_temp": null}',
            [Reading("state", 1.0), Reading("brightness", 215.0), Reading("color.x", 0.1), Reading("color.y", 0.2)],
        ),
        (
            '{"battery": "100.00", "voltage": 3045, "linkquality": 99, "water_leak": false}',
            [
                Reading("battery", 100.0, unit="%"),
                Reading("voltage", 3045.0, unit="mV"),
                Reading("linkquality", 99.0),
                Reading("water_leak", 0.0),
            ],
        ),
        (
            '{"power": 12.1, "voltage": 231, "energy": 5.5, "state_l1": "OFF", "power_phase_b": 3}',
            [
                Reading("power", 12.1, unit="W"),
                Reading("voltage", 231.0, unit="V"),
                Reading("energy", 5.5, unit="kWh"),
                Reading("state_l1", 0.0),
                Reading("power_phase_b", 3.0, unit="W"),
            ],
        ),
        ('{"voltage": 3}', [Reading("voltage", 3.0)]),
        (
            '{"battery": 85, "last_seen": "2019-01-12T13:41:35.890Z"}',
            [Reading("battery", 85.0, unit="%", time_ns=SEEN_NS)],
        ),
        ('{"contact": true, "last_seen": 1547300495890}', [Reading("contact", 1.0, time_ns=SEEN_NS)]),
        (
            '{"contact": true, "last_seen": "yesterday"}',
            [Reading("contact", 1.0), Leftover("last_seen", "neither RFC 3339 with an offset nor milliseconds")],
        ),
        (
            '{"temperature": "warm", "update": {"state": "idle", "installed_version": 17}}',
            [
                Leftover("temperature", "a text instead of a number"),
                Reading("update.state", text="idle"),
                Reading("update.installed_version", 17.0),
            ],
        ),
    ],
)
def test_a_state_becomes_readings_with_units(make_event: MakeEvent, body: str, returned: list[Reading | Leftover]) -> None:
    assert list(parse(make_event(body.encode(), subject="zigbee2mqtt/living room/lamp"))) == returned


@pytest.mark.parametrize(("body", "value"), [(b"online", 1.0), (b'{"state":"offline"}', 0.0)])
def test_availability_is_a_reading(make_event: MakeEvent, body: bytes, value: float) -> None:
    assert list(parse(make_event(body, subject="zigbee2mqtt/lamp/availability"))) == [Reading("available", value)]
    assert list(parse(make_event(body, subject="zigbee2mqtt/bridge/state", type="availability"))) == [
        Reading("available", value)
    ]


@pytest.mark.parametrize(
    ("attribute", "body", "returned"),
    [
        ("temperature", b"21.5", Reading("temperature", 21.5, unit="Cel")),
        ("state", b"OFF", Reading("state", 0.0)),
        ("action", b"single", Reading("action", text="single")),
        ("humidity", b"?", Leftover("humidity", "a text instead of a number")),
        ("schedule", b"[1]", Leftover("schedule", "an array")),
    ],
)
def test_a_topic_for_each_attribute_names_the_reading(
    make_event: MakeEvent, attribute: str, body: bytes, returned: Reading | Leftover
) -> None:
    assert list(parse(make_event(body, subject=f"zigbee2mqtt/lamp/{attribute}"))) == [returned]


@pytest.mark.parametrize("body", [b'{"a":', b"{,}"])
def test_a_broken_state_is_poison(make_event: MakeEvent, body: bytes) -> None:
    with pytest.raises(Poison):
        list(parse(make_event(body, subject="zigbee2mqtt/lamp")))


def test_one_odd_value_costs_no_other_value(make_event: MakeEvent) -> None:
    body = b'{"temperature": 21.5, "a": 1, "a": 2, "battery": 7}'
    returned = list(parse(make_event(body, subject="zigbee2mqtt/lamp")))
    assert returned == [
        Reading("temperature", 21.5, unit="Cel"),
        Leftover("a", "named twice"),
        Reading("battery", 7.0, unit="%"),
    ]


@given(st.binary(max_size=100), st.sampled_from(["zigbee2mqtt/lamp", "zigbee2mqtt/lamp/availability", ""]))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=at_most(100))
def test_hostile_bytes_give_readings_or_poison(make_event: MakeEvent, body: bytes, subject: str) -> None:
    for each in (b"{" + body, body):
        with suppress(Poison, Skip):
            checked(parse(make_event(each, subject=subject)))
