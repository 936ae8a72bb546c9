"""Devices of the registry that are silent for too long."""

from cloud.devices.device_changes import put, see
from fogline.events.event import Lane
from fogline_cloud.devices.device_table import DeviceTable
from fogline_cloud.devices.record import DeviceSighting, encode_sighting, seen_key
from fogline_cloud.devices.silence import MAX_TYPES, OTHER, SilenceRules, SilentCount
from fogline_cloud.fleet_settings import SilentSettings

NOW_S = 1_790_000_000
HOUR_S = 3600


def silent_counts_of(devices: DeviceTable, rules: SilenceRules, now_s: float) -> dict[tuple[str, str], int]:
    found = SilentCount(rules, now_s)
    for each in devices:
        found.add(each)
    return found.counts


def table(*devices: tuple[str, str, int | None]) -> DeviceTable:
    """Return a registry. Of each device: its name, its type, and the hours since its last event, `None` for never."""
    made = DeviceTable()
    for name, kind, hours in devices:
        put(made, name, type=kind)
        if hours is not None:
            see(made, name, "gw-1", (NOW_S - hours * HOUR_S) * 1000)
    return made


def test_a_device_is_silent_after_a_day_unless_the_settings_say_otherwise():
    devices = table(("lamp-1", "lamp", 25), ("lamp-2", "lamp", 23), ("meter-1", "meter", 2))
    assert silent_counts_of(devices, SilenceRules([]), NOW_S) == {("lamp", ""): 1, ("meter", ""): 0}
    rules = SilenceRules([SilentSettings(type="met*", after_s=HOUR_S), SilentSettings(after_s=48 * HOUR_S)])
    assert silent_counts_of(devices, rules, NOW_S) == {("lamp", ""): 0, ("meter", ""): 1}


def test_the_first_matching_entry_of_each_lane_applies():
    rules = SilenceRules(
        [
            SilentSettings(type="smoke", lane=Lane.ALARM, after_s=10),
            SilentSettings(type="smoke", after_s=20),
            SilentSettings(after_s=30),
            SilentSettings(lane=Lane.ALARM, after_s=40),
        ]
    )
    assert rules.limits("smoke") == {"alarm": 10, "": 20}
    assert rules.limits("lamp") == {"": 30, "alarm": 40}
    assert rules.lanes == {"alarm"}


def test_a_lane_is_silent_while_the_device_sends_on_another_one():
    devices = table(("smoke-1", "smoke", None), ("smoke-2", "smoke", 0))
    sighting = DeviceSighting(seen_ms=NOW_S * 1000, lanes={"alarm": (NOW_S - HOUR_S) * 1000})
    devices.apply(seen_key("smoke-1", "gw-1").encode(), encode_sighting(sighting))
    rules = SilenceRules([SilentSettings(lane=Lane.ALARM, after_s=2 * HOUR_S), SilentSettings(after_s=2 * HOUR_S)])
    assert silent_counts_of(devices, rules, NOW_S) == {("smoke", "alarm"): 1, ("smoke", ""): 0}
    assert silent_counts_of(devices, rules, NOW_S + 3 * HOUR_S) == {("smoke", "alarm"): 2, ("smoke", ""): 2}


def test_a_device_that_was_never_heard_is_silent_since_it_was_set():
    devices = table(("lamp-1", "lamp", None))
    changed_s = devices.get("lamp-1").record.changed_ms / 1000
    rules = SilenceRules([])
    assert silent_counts_of(devices, rules, changed_s + 23 * HOUR_S) == {("lamp", ""): 0}
    assert silent_counts_of(devices, rules, changed_s + 25 * HOUR_S) == {("lamp", ""): 1}


def test_there_are_not_more_series_than_types_at_most():
    devices = table(*((f"d-{n}", f"type-{n}", 30) for n in range(MAX_TYPES + 20)))
    counts = silent_counts_of(devices, SilenceRules([]), NOW_S)
    assert len(counts) == MAX_TYPES + 1
    assert counts[OTHER, ""] == 20
