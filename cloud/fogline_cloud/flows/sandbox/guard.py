"""Limits on time and memory that hold in native code too. They end the process, or make an allocation fail.

Python runs a signal handler only between two of its own instructions, so `time_limit` cannot interrupt a loop in C. The guard
is the second line: two timers whose expiry ends the process without Python, one of CPU time and one of the clock. It sets them
once a second and not for each call, so that they cost a healthy parser nothing. In a child it sets them for each call.
"""

import faulthandler
import os
import signal
from contextlib import suppress
from pathlib import Path
from resource import RLIM_INFINITY, RLIMIT_DATA, getrlimit, setrlimit
from typing import Self

from fogline_cloud.flows.sandbox.time_limit import PATIENCE

_AGAIN_S = 1.0  # time between two settings of the timers
_SLACK_S = 0.1  # least CPU time of a call
_CPU_LIMITS = 2  # number of time limits of CPU time, before the process ends
_CLOCK_LIMITS = PATIENCE + 2  # the same, by the clock: `time_limit` is to come first
_STATUS = Path("/proc/self/status")
_STDERR = 2


class Guard:
    """Guards this process while it runs parsers. A context manager for the main thread.

    `limit_s`: of `TimeLimit`. `memory_bytes`: memory that the process may take beyond what it has on entry. Uses SIGPROF and
    `faulthandler.dump_traceback_later`. In a forked child it limits CPU time and memory only: the parent must watch the clock.
    """

    def __init__(self, limit_s: float, memory_bytes: int) -> None:
        self.clock_s = _CLOCK_LIMITS * limit_s + _AGAIN_S
        self._cpu_s = _CPU_LIMITS * limit_s
        self._memory_bytes = memory_bytes
        self._due_ns = 0
        self._process = os.getpid()
        self._in_child = False

    def __enter__(self) -> Self:
        self._in_child = os.getpid() != self._process
        self._former = getrlimit(RLIMIT_DATA)
        soft, hard = self._former
        if (used := _data_bytes()) is not None:
            limits = (each for each in (used + self._memory_bytes, soft, hard) if each != RLIM_INFINITY)
            setrlimit(RLIMIT_DATA, (min(limits), hard))
        return self

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        if not self._in_child:
            faulthandler.cancel_dump_traceback_later()
        self._due_ns = 0
        setrlimit(RLIMIT_DATA, self._former)

    def watch(self, now_ns: int, share: float) -> None:
        """Watch the call that begins now. `now_ns`: `time.perf_counter_ns()`. `share`: its share of the time limit."""
        if now_ns < self._due_ns and share == 1.0:
            return
        again_s = 0.0 if self._in_child or share < 1.0 else _AGAIN_S
        signal.setitimer(signal.ITIMER_PROF, self._cpu_s * share + max(again_s, _SLACK_S))
        if not self._in_child:  # its lock may be held for ever there, by a thread that only the parent has
            faulthandler.dump_traceback_later(self.clock_s, exit=True, file=_STDERR)
        self._due_ns = now_ns + int(again_s * 1e9)


def _data_bytes() -> int | None:
    """Return the memory that RLIMIT_DATA counts; `None` where the kernel does not tell, which is everywhere but on Linux."""
    with suppress(OSError):
        for line in _STATUS.read_text("ascii", "replace").splitlines():
            if line.startswith("VmData:"):
                return int(line.split()[1]) * 1024
    return None
