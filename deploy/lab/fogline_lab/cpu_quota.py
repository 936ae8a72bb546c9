"""Limits a process to a share of one CPU: by a control group where this user may make one, else by stopping it in turns."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

PERIOD_S = 0.1
_CGROUPS = Path("/sys/fs/cgroup")


@contextlib.contextmanager
def cpu_quota(pid: int, share: float) -> Iterator[str]:
    """Let all threads of a process together use `share` of one CPU in each period of 100 ms. Yields the means, in words."""
    with contextlib.ExitStack() as stack:
        try:
            yield stack.enter_context(_control_group(pid, share))
        except _NoGroupError:
            yield stack.enter_context(_turns(pid, share))


class _NoGroupError(Exception):
    """This user cannot make a control group with a limit of CPU time."""


@contextlib.contextmanager
def _control_group(pid: int, share: float) -> Iterator[str]:
    period_us, quota_us = round(PERIOD_S * 1e6), round(PERIOD_S * share * 1e6)
    for version, parent, limits in (
        ("v2", _CGROUPS, {"cpu.max": f"{quota_us} {period_us}"}),
        ("v1", _CGROUPS / "cpu", {"cpu.cfs_period_us": str(period_us), "cpu.cfs_quota_us": str(quota_us)}),
    ):
        group = parent / f"fogline-lab-{pid}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            for name, value in limits.items():
                if not (group / name).exists():
                    break
                (group / name).write_text(value)
            else:
                before = _group_of(pid, parent, version)
                (group / "cgroup.procs").write_text(str(pid))
                yield f"cgroup {version}"
                for member in (group / "cgroup.procs").read_text().split():
                    (before / "cgroup.procs").write_text(member)
                return
        finally:
            group.rmdir()
    raise _NoGroupError


def _group_of(pid: int, parent: Path, version: str) -> Path:
    """The folder of the group in which a process is."""
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if (version == "v2" and not controllers) or (version == "v1" and "cpu" in controllers.split(",")):
            return parent / path.lstrip("/")
    return parent


@contextlib.contextmanager
def _turns(pid: int, share: float) -> Iterator[str]:
    """Stop the process and let it go on, in turns."""
    ended = threading.Event()
    on_s = PERIOD_S * share

    def alternate() -> None:
        with contextlib.suppress(ProcessLookupError):
            while not ended.is_set():
                os.kill(pid, signal.SIGCONT)
                time.sleep(on_s)
                os.kill(pid, signal.SIGSTOP)
                time.sleep(PERIOD_S - on_s)
            os.kill(pid, signal.SIGCONT)

    thread = threading.Thread(target=alternate, name="cpu quota", daemon=True)
    thread.start()
    try:
        yield "SIGSTOP and SIGCONT in turns"
    finally:
        ended.set()
        thread.join()
