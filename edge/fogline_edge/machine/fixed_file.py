"""A small file that is overwritten in place, because a full disk has no room for a new file.

It has its full size from the start. On a file system that copies what it overwrites (btrfs, f2fs) it may keep its former
content.
"""

import contextlib
import os
from pathlib import Path


def overwrite(path: Path, content: bytes, size: int) -> None:
    """Write the content at the start of the file, and spaces behind it. A disk that fails is ignored: the log says it too."""
    with contextlib.suppress(OSError):
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            os.pwrite(file, content.ljust(size - 1) + b"\n", 0)
        finally:
            os.close(file)
