"""Memory of a process, from Linux's /proc."""

import resource
from pathlib import Path


def resident_bytes(pid: int | str = "self") -> int:
    """Return the resident set size (RSS) of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1]) * resource.getpagesize()


def proportional_bytes(pid: int | str = "self") -> int:
    """Return the proportional set size (PSS): shared pages count in part, by the number of processes that share them."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
