"""Where a device's page says to look if the device is silent."""

import pytest

from fogline_cloud.console.pages.line_state import HEARD_S
from fogline_cloud.console.pages.silence_cause import silence_cause
from fogline_cloud.devices.device_table import DeviceEntry
from fogline_cloud.devices.record import DeviceSighting

NOW_MS = 1_790_000_000_000
LONG_MS = int(HEARD_S * 1000) + 1


def heard(ago_ms, gateway="gw-1"):
    return DeviceEntry(name="d", sightings=((gateway, DeviceSighting(seen_ms=NOW_MS - ago_ms)),))


@pytest.mark.parametrize(
    ("device", "newest_ago_ms", "words"),
    [
        (DeviceEntry(name="d"), None, "No gateway has heard it yet"),
        (heard(LONG_MS - 2), 0, ""),
        (heard(LONG_MS), 1000, "Its gateway gw-1 heard another device 1 s ago: look at the device,"),
        (heard(2 * LONG_MS), LONG_MS, "Its gateway gw-1 has heard no device for 10 min: look at the gateway"),
        (heard(LONG_MS), None, "look at the gateway"),
        (heard(LONG_MS, ""), None, "look at the device"),
    ],
)
def test_cause_is_the_device_or_the_gateway_that_heard_it_last(device, newest_ago_ms, words):
    newest_ms = None if newest_ago_ms is None else NOW_MS - newest_ago_ms
    found = silence_cause(device, newest_ms, NOW_MS)
    assert words in found
    assert bool(words) == bool(found)
