"""The last event of a device is noted now and then, not for each event."""

import pytest

from cloud.devices.device_changes import put, see
from fogline.events.codec import Batch
from fogline.events.event import Lane, rfc3339
from fogline_cloud.devices.device_table import DeviceTable
from fogline_cloud.devices.record import encode_sighting, seen_key
from fogline_cloud.settings import DeviceSettings, Learn
from fogline_cloud.shard import sightings as module
from fogline_cloud.shard.sightings import Sightings
from fogline_lab.events import make_event

START_MS = 1_790_000_000_000
MINUTE = 60_000


def batch(*devices: str, properties: str | None = None, at_ms: int = 0, lane: Lane = Lane.TELEMETRY) -> Batch:
    recorded = rfc3339((START_MS + at_ms) * 1_000_000)
    more = {"tenant": "acme", "properties": properties, "recordedtime": recorded, "lane": lane}
    return Batch.of([make_event(n, device=each, **more) for n, each in enumerate(devices, 1)])


def noted(sightings: Sightings, now_ms: int, *devices: str, gateway="gw-1", **more) -> list[str]:
    found = sightings.due(gateway, batch(*devices, at_ms=now_ms, **more), "acme", START_MS + now_ms)
    return sorted(device for device, _ in found)


@pytest.fixture
def table() -> DeviceTable:
    made = DeviceTable()
    put(made, "lamp-1")
    return made


def test_a_device_is_noted_once_in_ten_minutes_for_each_gateway(table):
    sightings = Sightings(table, DeviceSettings())
    assert noted(sightings, 0 * MINUTE + 1, "lamp-1", "lamp-1") == ["lamp-1"]
    assert noted(sightings, 9 * MINUTE, "lamp-1") == []
    assert noted(sightings, 9 * MINUTE, "lamp-1", gateway="gw-2") == ["lamp-1"]
    assert noted(sightings, 11 * MINUTE, "lamp-1") == ["lamp-1"]


def test_sighting_noted_by_another_bridge_is_not_noted_again(table):
    see(table, "lamp-1", "gw-1", START_MS + 1000)
    assert noted(Sightings(table, DeviceSettings()), 9 * MINUTE, "lamp-1") == []
    assert noted(Sightings(table, DeviceSettings()), 1, "lamp-1") == ["lamp-1"]  # that note was of a wrong clock


def test_unregistered_devices_are_noted_only_if_the_settings_allow_it(table):
    for learn, expected in ((Learn.NONE, []), (Learn.REGISTERED, ["lamp-1"]), (Learn.ALL, ["lamp-1", "tag-9"])):
        assert noted(Sightings(table, DeviceSettings(learn=learn)), MINUTE, "lamp-1", "tag-9") == expected


def test_the_firmware_is_a_property_of_an_event(table):
    sightings = Sightings(table, DeviceSettings())
    found = dict(sightings.due("gw-1", batch("lamp-1", properties="x=1&firmware=2.0"), "acme", START_MS))
    assert found["lamp-1"].firmware == "2.0"
    table.apply(seen_key("lamp-1", "gw-1").encode(), encode_sighting(found["lamp-1"]))
    next_batch = batch("lamp-1", properties="firmware=" + "9" * 100, at_ms=20 * MINUTE)
    later = dict(sightings.due("gw-1", next_batch, "acme", START_MS + 20 * MINUTE))
    assert later["lamp-1"].firmware == "2.0"


def test_memory_is_bounded(table, monkeypatch):
    monkeypatch.setattr(module, "MOST", 3)
    sightings = Sightings(table, DeviceSettings(learn=Learn.ALL))
    assert len(noted(sightings, MINUTE, *(f"d{n}" for n in range(10)))) == 10
    assert len(sightings._written) == 3


def test_a_lane_with_a_limit_of_its_own_is_noted_beside_the_other_events(table):
    """An alarm between two sightings would not be seen else."""
    sightings = Sightings(table, DeviceSettings(), frozenset({"alarm"}))
    telemetry = dict(sightings.due("gw-1", batch("lamp-1", at_ms=MINUTE), "acme", START_MS + MINUTE))
    assert telemetry["lamp-1"].lanes is None
    alarm = dict(sightings.due("gw-1", batch("lamp-1", at_ms=2 * MINUTE, lane=Lane.ALARM), "acme", START_MS + 2 * MINUTE))
    assert alarm["lamp-1"].lanes == {"alarm": START_MS + 2 * MINUTE}
    assert noted(sightings, 3 * MINUTE, "lamp-1", lane=Lane.ALARM) == []
    later = dict(sightings.due("gw-1", batch("lamp-1", at_ms=13 * MINUTE), "acme", START_MS + 13 * MINUTE))
    assert later["lamp-1"].lanes == {"alarm": START_MS + 2 * MINUTE}, "the time of the last alarm stays"
    table.apply(seen_key("lamp-1", "gw-1").encode(), encode_sighting(later["lamp-1"]))
    assert table.get("lamp-1").seen_by("gw-1") == later["lamp-1"]


def test_an_alarm_that_waited_in_the_outbox_does_not_set_the_time_of_the_device_back(table):
    sightings = Sightings(table, DeviceSettings(), frozenset({"alarm"}))
    assert noted(sightings, 60 * MINUTE, "lamp-1") == ["lamp-1"]
    found = dict(sightings.due("gw-1", batch("lamp-1", at_ms=20 * MINUTE, lane=Lane.ALARM), "acme", START_MS + 61 * MINUTE))
    assert found["lamp-1"].seen_ms == START_MS + 60 * MINUTE
    assert found["lamp-1"].lanes == {"alarm": START_MS + 20 * MINUTE}
