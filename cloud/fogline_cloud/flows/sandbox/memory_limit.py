"""A limit on the memory of this process, as the kernel counts it: allocations beyond it fail, in native code too."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from resource import RLIM_INFINITY, RLIMIT_DATA, getrlimit, setrlimit

_STATUS = Path("/proc/self/status")


@contextmanager
def memory_limit(more_bytes: int) -> Iterator[None]:
    """Let this process take so many bytes beyond those that it has, within the block."""
    soft, hard = former = getrlimit(RLIMIT_DATA)
    limits = (each for each in (_data_bytes() + more_bytes, soft, hard) if each != RLIM_INFINITY)
    setrlimit(RLIMIT_DATA, (min(limits), hard))
    try:
        yield
    finally:
        setrlimit(RLIMIT_DATA, former)


def _data_bytes() -> int:
    """Return the memory that RLIMIT_DATA counts."""
    lines = _STATUS.read_text("ascii", "replace").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmData:"))
