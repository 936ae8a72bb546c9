"""Keeps the Python threads of a process on one CPU, because CPython runs one of them at a time (docs/decisions/0016).

A hand-over of the interpreter lock to another CPU's cold cache costs time. Threads of libraries may run on any CPU.
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
"""Time between two checks for a CPU with more idle time, and for new threads; varied by a fifth."""
WORTH = 0.25
"""Difference of idle time, as a part of a CPU's time, above which the process moves."""

_TASKS = Path("/proc/self/task")
_UNREADABLE = (OSError, ValueError, IndexError)  # errors on a machine with another `/proc`, or without a free file descriptor
_log = logging.getLogger("fogline.process.one_cpu")


def choose(here: int, idle: Mapping[int, float], own: float) -> int:
    """Return the best CPU. `idle`: idle part of each CPU's time; `own`: part of `here` that this process used."""
    best = max(idle, key=lambda cpu: (idle[cpu], cpu == here))
    return best if idle[best] > idle[here] + own + WORTH else here


def stay_on_one_cpu() -> None:
    """Keep all Python threads of this process on one CPU with idle time, from now on. Works only on Linux with `/proc`."""
    if not hasattr(os, "sched_setaffinity") or len(allowed := os.sched_getaffinity(0)) < 2:
        return
    try:
        here, times = int(_stat(Path("/proc/thread-self"))[36]), _times()
        if here not in allowed or not allowed <= times.keys():
            return
        _gather(here, allowed)
    except _UNREADABLE as error:
        _log.info("this process stays on all CPUs: %s", error)
        return
    threading.Thread(target=_look, args=(here, allowed), name="one-cpu", daemon=True).start()


def _look(here: int, allowed: set[int]) -> None:
    for pause_s in chain([FIRST_LOOK_S], repeat(LOOK_S)):
        began, used, before = time.monotonic(), _used_s(), dict[int, list[int]]()
        with suppress(*_UNREADABLE):
            before = _times()
        time.sleep(pause_s * random.uniform(0.8, 1.2))
        own = sum(now_s - used.get(thread, 0.0) for thread, now_s in _used_s().items()) / (time.monotonic() - began)
        with suppress(*_UNREADABLE):
            idle = {cpu: part for cpu, part in _idle(before, _times()).items() if cpu in allowed}
            there = choose(here, {here: 0.0, **idle}, own if here in idle else 0.0)
            if there != here:
                _log.info("moving from CPU %d to CPU %d, which is idle for %.0f %% of its time", here, there, 100 * idle[there])
            _gather(there, allowed)
            here = there


def _used_s() -> dict[int, float]:
    used = {}
    for thread in threading.enumerate():
        with suppress(*_UNREADABLE):  # it may just have ended
            user, system = _stat(_TASKS / str(thread.native_id))[11:13]
            used[thread.native_id or 0] = (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
    return used


def _gather(cpu: int, allowed: set[int]) -> None:
    os.sched_setaffinity(0, {cpu})
    ours = {thread.native_id for thread in threading.enumerate()}
    for task in _TASKS.iterdir():
        with suppress(OSError):  # it has just ended
            os.sched_setaffinity(int(task.name), {cpu} if int(task.name) in ours else allowed)


def _stat(task: Path) -> list[str]:
    """Return a thread's `stat` from its third field on (proc(5))."""
    return (task / "stat").read_text("ascii", "replace").rpartition(")")[2].split()


def _times() -> dict[int, list[int]]:
    """Return the ticks of each CPU by use, since the start of the system (proc(5), `/proc/stat`)."""
    lines = (line.split() for line in Path("/proc/stat").read_text("ascii").splitlines())
    return {int(name[3:]): list(map(int, spent)) for name, *spent in lines if name.startswith("cpu") and name != "cpu"}


def _idle(before: Mapping[int, list[int]], after: Mapping[int, list[int]]) -> dict[int, float]:
    """Return the part of the time between that each CPU was idle, or waited for a disk."""
    parts = {}
    for cpu in before.keys() & after.keys():
        spent = [now - then for then, now in zip(before[cpu], after[cpu], strict=True)][:8]  # what guests get is in `user`
        parts[cpu] = (spent[3] + spent[4]) / max(1, sum(spent))
    return parts
