"""Watches what no other part notices: the memory of this process, and jumps of the wall clock.

A gateway that grows beyond its bound leaves in order, and the service manager starts it again. Otherwise the kernel would kill
it in the end, or the machine would have no memory left for others. A jump of the wall clock is only noted, because no deadline
and no age depends on it.
"""

import asyncio
import gc
import logging
import re
from pathlib import Path

from fogline.errors import FoglineError
from fogline.events.event import rfc3339
from fogline_edge.machine.boot import AGREES_NS, Clock, moment
from fogline_edge.machine.run_record import ClockJump, RunRecord

EVERY_S = 2.0
"""Interval of the checks: neither memory nor a clock tells anybody that it has changed."""
PROCESS_STATUS = Path("/proc/self/status")
_MIB = 1024 * 1024
_MS = 1_000_000

_log = logging.getLogger("fogline.watchman")


class MemoryExceeded(FoglineError):
    """The process has more memory than its bound, and must end. A restart helps."""


def own_memory_bytes(status: Path = PROCESS_STATUS) -> int:
    """Return the memory that only this process has, in RAM and in swap. 0 if the kernel does not tell."""
    try:
        text = status.read_text("ascii", "replace")
    except OSError:
        return 0
    return sum(int(each) * 1024 for each in re.findall(r"^(?:RssAnon|VmSwap):\s+(\d+) kB$", text, re.MULTILINE))


class Watchman:
    """Checks memory and clock. `max_memory_mib`: the bound, 0 for none."""

    def __init__(self, record: RunRecord, clock: Clock, max_memory_mib: int = 0, status: Path = PROCESS_STATUS) -> None:
        self.record = record
        self._clock = clock
        self._max_memory_mib = max_memory_mib
        self._status = status
        self._boot_time_ns = self._present_boot_time_ns()
        self._synced: bool | None = None

    async def run(self) -> None:
        """Check again and again. Raises `MemoryExceeded`."""
        while True:
            self.check()
            await asyncio.sleep(EVERY_S)

    def check(self) -> None:
        """Check once. Raises `MemoryExceeded`."""
        self._check_clock()
        if self._max_memory_mib:
            self._check_memory()

    def _check_memory(self) -> None:
        bound = self._max_memory_mib * _MIB
        if own_memory_bytes(self._status) <= bound:
            return
        gc.collect()  # the collector runs rarely here
        if (used := own_memory_bytes(self._status)) > bound:
            text = f"the gateway has {used // _MIB} MiB of memory, more than {self._max_memory_mib} MiB (--max-memory-mib)"
            _log.error("%s: it leaves, so that the service manager starts it again", text, extra={"reason": "memory"})
            raise MemoryExceeded(text)

    def _check_clock(self) -> None:
        boot_time_ns, jump = self._present_boot_time_ns(), None
        by_ns, self._boot_time_ns = boot_time_ns - self._boot_time_ns, boot_time_ns
        now = moment(self._clock)
        if abs(by_ns) > AGREES_NS:
            jump = ClockJump(now.text, rfc3339(now.time_ns - by_ns), by_ns / 1e9)
            _log.warning("%s; deadlines and ages do not depend on it", jump.sentence, extra={"reason": "clock"})
        if self._synced is not None and now.synced != self._synced:
            if now.synced:
                _log.info("the wall clock is known to be right", extra={"reason": "clock"})
            else:
                unknown = "the wall clock is not known to be right: until it is, events are marked `unsynced`"
                _log.warning(unknown, extra={"reason": "clock"})
        self._synced = now.synced
        self.record.note_clock(jump, synced=now.synced)

    def _present_boot_time_ns(self) -> int:
        """Return the wall-clock time of the boot, which changes only when somebody sets the clock."""
        return self._clock.time_ns() - self._clock.beacon().boottime_ms * _MS
