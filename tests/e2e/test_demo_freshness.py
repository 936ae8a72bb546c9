"""The demo's figures of the table's freshness."""

import sys
import time
from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake

sys.path.append(str(Path(__file__).parents[2] / "deploy"))

from demo.evidence import read_times, read_visible
from demo.freshness import Outage, freshness
from demo.row_watch import RowWatch

LIMIT_S = 60.0


def test_events_that_a_kill_delayed_do_not_count_for_the_freshness_of_the_table():
    acknowledged = {("lamp-01", n): float(n) for n in range(1, 11)}
    visible = {each: at + 1 for each, at in acknowledged.items()}
    visible |= {("lamp-01", n): 9.5 for n in range(4, 9)}  # the outage from 4.5 to 7.5, and a backlog that lands at 9.5
    outage = Outage("spark", 4.5, session_s=6.0, over_s=7.5)
    found = freshness(acknowledged, visible, [2.0, 3.0, 4.0, 9.5, 10.0, 11.0], [outage])
    assert (found.count, found.median_s, found.p99_s, found.moved_s) == (4, 1.0, 1.0, [3.5])
    assert freshness(acknowledged, visible, [], [Outage("bridge-1", 4.5)]).count == 3, "a part that did not come back"


def test_the_freshness_names_its_goals():
    acknowledged = {("lamp-01", n): 0.0 for n in range(100)}
    found = freshness(acknowledged, {each: 1.0 if each[1] < 97 else 6.0 for each in acknowledged}, [20.0], [])
    assert (found.median_s, found.p99_s, found.longest_s) == (1.0, 6.0, 6.0)
    assert found.as_json()["goals"] == {"median_s": 2.0, "p99_s": 5.0, "moved_s": 15.0}
    assert (
        "100 events while nothing was killed: median 1.0 s (goal 2 s: met), p99 6.0 s (goal 5 s: missed)" in found.sentences[0]
    )
    assert freshness({}, {}, [7.0, 20.0], [Outage("spark", 1.0, session_s=4.0, over_s=9.0)]).sentences == [
        "from Spark's session to the table's next commit, after each kill: 3.0 s (goal 15 s: met)"
    ]


def test_rows_are_visible_when_delta_rs_first_sees_their_file(folder):
    watch = RowWatch(folder / "readings")
    watch.start()
    try:
        for n in (1, 2):
            rows = {"device": ["lamp-01", "lamp-01"], "metric": ["n", "temperature"], "value": [float(n), 20.5]}
            write_deltalake(
                str(watch.folder), pa.table({**rows, "day": ["2026-11-01"] * 2}), mode="append", partition_by=["day"]
            )
            deadline = time.monotonic() + LIMIT_S
            while len(watch.commits_s) < n:
                assert time.monotonic() < deadline, "the commit is not seen"
    finally:
        watch.stop()
    first, second = watch.commits_s
    assert read_visible(watch) == {("lamp-01", 1): first, ("lamp-01", 2): second}


def test_the_devices_write_down_when_they_were_acknowledged(folder):
    file = folder / "acknowledged"
    file.write_text("lamp-01 1 12.250\nlamp-01 2 12.500\nlamp-02 1 1")
    assert read_times(file) == {("lamp-01", 1): 12.25, ("lamp-01", 2): 12.5}
