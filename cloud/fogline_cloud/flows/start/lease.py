"""A lease on a folder: a second process that would use it is refused at its start, a flow before it starts Spark.

It is a lock of the kernel on a file beside the folder, so it ends with the process that holds it, however that ends. A folder
in an object store has no lease: there the newest owner takes over (`fogline_cloud.flows.tables.owner`).
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from fogline.errors import Misconfigured

_LOOK_S = 0.3


def leased(checkpoint: str) -> AbstractContextManager[None]:
    """Hold the lease on a flow's checkpoint within this. Raises `Misconfigured` if another process holds it."""
    remedy = "Stop that one first, or give this one other [flow] tables and another checkpoint"
    return held(checkpoint, f"[flow] checkpoint = {checkpoint}", "flow", remedy)


@contextmanager
def held(folder: str, called: str, holder: str, remedy: str) -> Iterator[None]:
    """Hold the lease on a folder within this. Raises `Misconfigured` if another process holds it.

    For that error, `called`: the folder in words, `holder`: what uses it, `remedy`: what to do.
    """
    if "://" in folder:
        yield
        return
    path = Path(f"{folder}.lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise Misconfigured(f"{called}: cannot write {path}: {error.strerror}") from None
    try:
        if not _locked(descriptor):
            process = os.read(descriptor, 20).decode("ascii", "replace").strip() or "unknown"
            raise Misconfigured(
                f"{called}: another {holder} uses it on this machine (process {process}), and goes on. {remedy}"
            )
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def is_held(folder: str) -> bool | None:
    """Return True if a process holds the lease on a folder; None if nothing can be said: it never had one, or is elsewhere."""
    if "://" in folder:
        return None
    try:
        descriptor = os.open(f"{folder}.lock", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)  # for an instant: `held` tries again
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def _locked(descriptor: int) -> bool:
    """Take the lock. One that is given back within `_LOOK_S` belonged to somebody who has only looked."""
    until_s = time.monotonic() + _LOOK_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if time.monotonic() > until_s:
                return False
            time.sleep(0.02)
        else:
            return True
