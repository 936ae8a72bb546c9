"""A device was last seen when its gateway got an event from the device itself."""

import pytest

from fogline.events.codec import Batch
from fogline.events.event import Lane, TimeQuality, rfc3339
from fogline_cloud.devices.device_table import DeviceTable
from fogline_cloud.settings import DeviceSettings, Learn
from fogline_cloud.shard.sightings import Sightings
from fogline_lab.events import make_event

NOW_MS = 1_790_000_000_000
HOUR_MS = 3_600_000


def at(ms: int, **more):
    return make_event(1, tenant="acme", device="lamp-1", recordedtime=rfc3339(ms * 1_000_000), **more)


def seen(*batches: list) -> list[int]:
    """Return the times that are noted for `lamp-1`, if its gateway uploads these batches now."""
    sightings = Sightings(DeviceTable(), DeviceSettings(learn=Learn.ALL))
    return [found.seen_ms for each in batches for _, found in sightings.due("gw-1", Batch.of(each), "acme", NOW_MS)]


def ended(state: str, ms: int = NOW_MS):
    return at(ms, lane=Lane.REPLY, commandid="C1", commandstate=state, correlationid="string:m", status=408)


@pytest.mark.parametrize("state", ["EXPIRED", "CANCELLED", "REJECTED", "IN_DOUBT"])
def test_a_command_that_ends_without_the_device_is_no_sign_of_the_device(state):
    assert seen([ended(state)]) == []


@pytest.mark.parametrize("state", ["SUCCEEDED", "FAILED"])
def test_an_answer_of_the_device_is_a_sign_of_it(state):
    assert seen([ended(state, NOW_MS - 5)]) == [NOW_MS - 5]


def test_an_upload_after_an_outage_counts_by_the_time_at_which_the_gateway_got_the_events():
    three_hours_ago = NOW_MS - 3 * HOUR_MS
    assert seen([at(three_hours_ago - 1000), at(three_hours_ago)]) == [three_hours_ago]


def test_an_old_event_after_a_new_one_does_not_move_the_time_back():
    assert seen([at(NOW_MS)], [at(NOW_MS - 3 * HOUR_MS)]) == [NOW_MS]


def test_an_event_of_a_gateway_whose_clock_is_ahead_is_not_in_the_future():
    assert seen([at(NOW_MS + HOUR_MS)]) == [NOW_MS]


def test_an_event_of_a_gateway_without_a_clock_counts_by_the_time_of_its_upload():
    assert seen([at(0, timequality=TimeQuality.UNSYNCED)]) == [NOW_MS]
