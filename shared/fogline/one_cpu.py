"""One interpreter runs one of its threads at a time: they are kept together on one CPU.

Spread over several, each hand-over of the interpreter wakes another CPU, which finds its cache cold
(docs/decisions/0016-one-interpreter-one-cpu.md). Threads of libraries that never ask for it may be anywhere.
"""

import logging
import os
import random
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from itertools import chain, repeat
from pathlib import Path

FIRST_LOOK_S = 1.0
LOOK_S = 10.0
"""How often it is asked whether another CPU has more time to give, and for new threads; give or take a fifth."""
WORTH = 0.25
"""So much more of a CPU's time is worth the move."""

_TASKS = Path("/proc/self/task")
_log = logging.getLogger("fogline.one_cpu")


def choose(here: int, idle: Mapping[int, float], own: float) -> int:
    """The CPU to be on. `idle`: which part of its time each of them was idle, `own`: which part of `here` was ours."""
    best = max(idle, key=lambda cpu: (idle[cpu], cpu == here))
    return best if idle[best] > idle[here] + own + WORTH else here


def stay_on_one_cpu() -> None:
    """From now on all Python threads of this process, and those that they start, are on one CPU at a time.

    It is one with time to give. Threads that are not Python's are let go from there at the next look.

    Only CPUs that the process may use by now are used. Nothing is done where there is only one, outside Linux, or where the
    system does not let a process see its CPUs.
    """
    if not hasattr(os, "sched_setaffinity") or len(allowed := os.sched_getaffinity(0)) < 2:
        return
    try:
        here, times = _now_on(), _times()
    except OSError as error:
        _log.info("this process stays on all CPUs: %s", error)
        return
    if here in allowed and allowed <= times.keys():
        _gather(here, allowed)
        threading.Thread(target=_look, args=(here, allowed), name="one-cpu", daemon=True).start()


def _look(here: int, allowed: set[int]) -> None:
    """For ever: from time to time, choose again."""
    for pause_s in chain([FIRST_LOOK_S], repeat(LOOK_S)):
        before, began, used = _times(), time.monotonic(), time.process_time()
        time.sleep(pause_s * random.uniform(0.8, 1.2))
        own = (time.process_time() - used) / (time.monotonic() - began)
        idle = {cpu: part for cpu, part in _idle(before, _times()).items() if cpu in allowed}
        if here in idle and (there := choose(here, idle, min(own, 1.0))) != here:
            _log.info("moving from CPU %d to CPU %d, which is idle for %.0f %% of its time", here, there, 100 * idle[there])
            here = there
        _gather(here, allowed)


def _gather(cpu: int, allowed: set[int]) -> None:
    """Python's threads go to `cpu`, all others anywhere. One that has just ended need not; a CPU may have gone offline."""
    ours = {thread.native_id for thread in threading.enumerate()}
    for task in _TASKS.iterdir():
        with suppress(OSError):
            os.sched_setaffinity(int(task.name), {cpu} if int(task.name) in ours else allowed)


def _now_on() -> int:
    """The CPU that the system has put this thread on (proc(5), `stat`, field 39)."""
    return int(Path("/proc/thread-self/stat").read_text("ascii", "replace").rpartition(")")[2].split()[36])


def _times() -> dict[int, list[int]]:
    """What each CPU has spent its time on since the system's start, in ticks (proc(5), `/proc/stat`)."""
    lines = (line.split() for line in Path("/proc/stat").read_text("ascii").splitlines())
    return {int(name[3:]): list(map(int, spent)) for name, *spent in lines if name.startswith("cpu") and name != "cpu"}


def _idle(before: Mapping[int, list[int]], after: Mapping[int, list[int]]) -> dict[int, float]:
    """Which part of the time between each was idle, or waited for a disk."""
    parts = {}
    for cpu in before.keys() & after.keys():
        spent = [now - then for then, now in zip(before[cpu], after[cpu], strict=True)][:8]  # what guests get is in `user`
        parts[cpu] = (spent[3] + spent[4]) / max(1, sum(spent))
    return parts
