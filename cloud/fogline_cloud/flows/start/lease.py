"""The lease of a running flow on its checkpoint: a second flow with the same settings is refused before it starts Spark.

It is a lock of the kernel on a file beside the checkpoint, so it ends with the process that holds it, however that ends. A
checkpoint in an object store has no lease: there the newest flow takes over (`fogline_cloud.flows.tables.owner`).
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fogline.errors import Misconfigured


@contextmanager
def leased(checkpoint: str) -> Iterator[None]:
    """Hold the lease on a checkpoint within this. Raises `Misconfigured` if another process holds it."""
    if "://" in checkpoint:
        yield
        return
    path = Path(f"{checkpoint}.lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise Misconfigured(f"[flow] checkpoint = {checkpoint}: cannot write {path}: {error.strerror}") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.read(descriptor, 20).decode("ascii", "replace").strip() or "unknown"
            text = f"another flow uses it on this machine (process {holder}), and goes on"
            remedy = "Stop that one first, or give this one other [flow] tables and another checkpoint"
            raise Misconfigured(f"[flow] checkpoint = {checkpoint}: {text}. {remedy}") from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)
