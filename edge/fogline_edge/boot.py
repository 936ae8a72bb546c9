"""This boot of the machine and its clock that nobody can set: what deadlines and ages are reckoned in."""

import time
import uuid
from functools import cache
from pathlib import Path

from fogline.codec import Beacon


@cache
def boot_id() -> str:
    """The kernel's name of this boot; a name of this process's own where the kernel has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return str(uuid.uuid4())


def beacon() -> Beacon:
    """Boot id and CLOCK_BOOTTIME in milliseconds, now."""
    return Beacon(boot_id(), int(time.clock_gettime(time.CLOCK_BOOTTIME) * 1000))
