"""A file of lines that only grows. Several processes may append; a kill loses at most the line that it interrupts."""

import fcntl
import os
from collections.abc import Callable, Iterable
from pathlib import Path


def append_line(path: Path, line: bytes, check: Callable[[Iterable[bytes]], None] = lambda _: None) -> None:
    """Append a line and sync it. Half a line that a kill has left is cut off first. Raises `OSError`.

    `check` gets the lines that are there, while no other process appends. If it raises an error, nothing is appended.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "ab+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        found = file.read()
        whole = found.rfind(b"\n") + 1
        check(found[:whole].splitlines())
        file.truncate(whole)
        file.write(line + b"\n")
        file.flush()
        os.fsync(file.fileno())


def read_lines(path: Path, begin: int = 0) -> tuple[list[bytes], int]:
    """Return the whole lines from the byte `begin` on, and where the next one will begin; none if there is no file."""
    try:
        with path.open("rb") as file:
            file.seek(begin)
            found = file.read()
    except FileNotFoundError:
        return [], 0
    whole = found.rfind(b"\n") + 1
    return found[:whole].splitlines(), begin + whole
