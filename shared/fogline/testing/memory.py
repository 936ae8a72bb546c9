"""How much memory this process holds, for tests of what may not grow."""

import resource
from pathlib import Path


def resident_bytes() -> int:
    """The resident set, as Linux says it."""
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * resource.getpagesize()
