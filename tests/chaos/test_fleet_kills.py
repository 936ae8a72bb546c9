"""Maintenance is killed again and again while it counts the events of the fleet."""

import random
import subprocess
import sys
from datetime import date, timedelta

import pytest

from cloud.fleet.counted_events import CountedEvents
from cloud.fleet.made_events import append

KILLS = 20
FIRST = date(2026, 1, 5)


@pytest.mark.slow
def test_a_maintenance_that_is_killed_twenty_times_counts_every_event_once(tmp_path):
    """Each kill comes at another moment, also within the counting and the commit."""
    counted = CountedEvents(tmp_path)
    (tmp_path / "cloud.toml").write_text('tenant = "t"\n[flow]\ntables = "."\n')
    command = [sys.executable, "-m", "fogline_cloud.cli.main", "table", "maintain", "--config", str(tmp_path / "cloud.toml")]
    killed = 0
    for number in range(KILLS):
        append(counted, FIRST + timedelta(days=number % 3), 500)
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            process.wait(random.uniform(0.4, 2.0))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(60)
            killed += 1
        if number % 5 == 4:
            counted.events.replace_day(lambda _: {"outcome": "dead"}, FIRST)
        counted.require_exact()
    counted.fleet().update()
    assert killed
    assert counted.stored() == counted.model()
