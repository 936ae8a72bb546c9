"""Runs `fogline table maintain` at intervals beside a flow, in a process of its own with a low priority.

Its memory and its failures are not the flow's: a failure is logged and counted, and the next run comes all the same.
"""

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

NICE = 10
"""Priority of the process, as of `nice`."""
_POLL_S = 0.5
_END_S = 10.0  # time that the process may take to end

log = logging.getLogger(__name__)


@contextmanager
def maintained(arguments: Sequence[str], every_s: float, on_failure: Callable[[], None]) -> Iterator[None]:
    """Run `fogline` with these arguments every `every_s` seconds until the end of the block; never if it is 0."""
    if not every_s:
        yield
        return
    stop = threading.Event()
    command = [sys.executable, "-m", "fogline_cloud.cli.main", *arguments]
    thread = threading.Thread(target=_repeat, args=(command, every_s, stop, on_failure), name="maintenance", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(_END_S + 1)


def _repeat(command: Sequence[str], every_s: float, stop: threading.Event, on_failure: Callable[[], None]) -> None:
    while not stop.wait(every_s):
        problem = _run(command, stop)
        if problem and not stop.is_set():
            on_failure()
            log.warning("maintenance of the tables failed: %s. Next try in %.0f s.", problem, every_s)


def _run(command: Sequence[str], stop: threading.Event) -> str:
    """Run once. Returns the last line of its errors if it failed. Ends it if the flow stops: every step is a commit."""
    pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    try:  # a session of its own: Ctrl-C is for the flow, which ends this process
        process = subprocess.Popen(command, **pipes, text=True, errors="replace", start_new_session=True)
    except OSError as error:
        return str(error)
    os.setpriority(os.PRIO_PROCESS, process.pid, NICE)
    errors: list[str] = []
    reader = threading.Thread(target=lambda: errors.extend(process.stderr or ()), daemon=True)
    reader.start()
    while process.poll() is None:
        if stop.wait(_POLL_S):
            process.terminate()
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    reader.join(_END_S)
    lines = [line.strip() for line in errors if line.strip()]
    return (lines[-1] if lines else f"exit status {process.returncode}") if process.returncode else ""
