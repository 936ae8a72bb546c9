"""A file of lines that only grows. Several processes may append; a kill loses at most the line that it interrupts."""

import fcntl
import os
from pathlib import Path


def append_line(path: Path, line: bytes) -> None:
    """Append a line and sync it. Half a line that a kill has left is cut off first. Raises `OSError`."""
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
    with os.fdopen(descriptor, "ab+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        whole = file.read().rfind(b"\n") + 1
        file.truncate(whole)
        file.write(line + b"\n")
        file.flush()
        os.fsync(file.fileno())


def read_lines(path: Path) -> list[bytes]:
    """Return the whole lines; none if there is no file."""
    try:
        return path.read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        return []
