"""The choice of a CPU, and the move of all Python threads to it."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from fogline.process import one_cpu
from fogline.process.one_cpu import choose


@pytest.mark.parametrize(
    ("here", "idle", "own", "there"),
    [
        (0, {0: 0.5, 1: 0.5}, 0.5, 0),
        (0, {0: 0.0, 1: 1.0}, 1.0, 0),
        (0, {0: 0.0, 1: 1.0}, 0.5, 1),
        (0, {0: 0.0, 1: 0.7}, 0.5, 0),
        (1, {0: 0.9, 1: 0.1, 2: 0.95}, 0.3, 2),
        (2, {0: 1.0, 1: 1.0, 2: 1.0}, 0.0, 2),
    ],
    ids=["all alike", "all of it is ours", "others are here", "not worth it", "the idlest", "nobody is anywhere"],
)
def test_it_goes_where_it_gets_more_time(here, idle, own, there):
    assert choose(here, idle, own) == there


PROGRAM = """
import json, os, threading
from fogline.process import one_cpu
from fogline.process.one_cpu import stay_on_one_cpu

one_cpu.FIRST_LOOK_S = 3600
done = threading.Event()
threading.Thread(target=done.wait).start()
stay_on_one_cpu()
threading.Thread(target=done.wait).start()
print(json.dumps([sorted(os.sched_getaffinity(int(task))) for task in os.listdir("/proc/self/task")]))
done.set()
"""


@pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2 or not Path("/proc/stat").exists(),
    reason="this machine has one CPU, or shows none",
)
def test_all_threads_are_on_one_cpu():
    places = json.loads(subprocess.run([sys.executable, "-c", PROGRAM], check=True, capture_output=True, timeout=60).stdout)
    assert len(places) == 4
    assert len(places[0]) == 1
    assert all(each == places[0] for each in places)


def test_a_machine_that_shows_nothing_for_a_while_is_looked_at_again(monkeypatch):
    """No descriptor is left, or a CPU is gone: that must not end the thread that looks."""

    def nothing():
        raise OSError("too many open files")

    pauses = []

    def sleep(seconds):
        pauses.append(seconds)
        if len(pauses) >= 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(one_cpu, "_times", nothing)
    monkeypatch.setattr(one_cpu, "time", SimpleNamespace(monotonic=time.monotonic, sleep=sleep))  # other threads may sleep
    with pytest.raises(KeyboardInterrupt):
        one_cpu._look(0, {0, 1})
    assert pauses[0] < 2 < pauses[1]
