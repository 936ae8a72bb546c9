"""Twenty advertisers whose payloads change each second, and holes of 6 s in what BlueZ delivers: what is lost outside of them.

A change counts as on the air outside the holes if it was for at least half of its second. `make chaos` has the long form.
"""

import pytest

from edge.ble.delivery import ENOUGH, SETTINGS, deliver, judge

from .world import World


@pytest.fixture
def quiet_world(tmp_path):
    """Nobody on the air but who a test puts there."""
    with World(tmp_path, SETTINGS, devices=False) as world:
        world.run(world.start())
        yield world


def test_delivery_of_changes_outside_the_holes(quiet_world):
    course = quiet_world.run(deliver(quiet_world, 18, [3, 11]))
    assert judge(quiet_world, course) >= ENOUGH
