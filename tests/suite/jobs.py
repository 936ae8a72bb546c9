"""Child processes that run side by side, each with its exit status and the CPU time that it used."""

import ctypes
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

PR_SET_CHILD_SUBREAPER = 36


@dataclass
class Job:
    """A command of the suite."""

    name: str
    command: Sequence[str | Path]
    environment: dict[str, str] = field(default_factory=dict)


@dataclass
class Result:
    """How a job ended. `cpu_s`: user and system time of the process and of all descendants that it waited for."""

    name: str
    status: int
    wall_s: float
    cpu_s: float
    output: str = ""


def adopt_orphans() -> None:
    """Become the parent of descendants whose parent ends (prctl(2)), so that `used_cpu_s` counts them."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def used_cpu_s() -> float:
    """Wait for orphans that have ended. Returns the CPU time of this process and of every descendant that has ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
    both = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return sum(each.ru_utime + each.ru_stime for each in both)


def run_job(job: Job, output: IO[bytes] | None = None) -> Result:
    """Run a job to its end. `output`: a file for what it prints, which is shown in the terminal otherwise."""
    began = time.monotonic()
    errors = None if output is None else subprocess.STDOUT
    process = subprocess.Popen(job.command, stdout=output, stderr=errors, env={**os.environ, **job.environment})
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return Result(job.name, process.returncode, time.monotonic() - began, usage.ru_utime + usage.ru_stime)


def run_side_by_side(checks: Sequence[Job], tests: Job, folder: Path) -> list[Result]:
    """Run the checks one after the other beside the tests. The output of a check is shown if it fails, after the tests'."""
    results: list[Result] = []

    def run_checks() -> None:
        for check in checks:
            with (folder / check.name).open("w+b") as output:
                result = run_job(check, output)
                output.seek(0)
                result.output = output.read().decode(errors="replace")
            results.append(result)

    thread = threading.Thread(target=run_checks, name="checks")
    thread.start()
    try:
        tested = run_job(tests)
    finally:
        thread.join()
    for failed in (each for each in results if each.status):
        print(f"\n{failed.name} failed:\n{failed.output}", flush=True)
    return [*results, tested]


def summary(results: Sequence[Result], total_s: float) -> str:
    """Return a table with one line for each job, and the total CPU time."""
    rows = [(each.name, "failed" if each.status else "passed", each.cpu_s, each.wall_s) for each in results]
    lines = [f"{name:<10}{outcome:<8}{cpu:8.1f} s CPU {wall:8.1f} s" for name, outcome, cpu, wall in rows]
    wall = max(each.wall_s for each in results)
    load = " ".join(f"{each:.1f}" for each in os.getloadavg())
    word = "failed" if any(each.status for each in results) else "passed"
    lines.append(f"{'all':<10}{word:<8}{total_s:8.1f} s CPU {wall:8.1f} s   (load averages: {load}; {os.cpu_count()} CPUs)")
    return "\n".join(["", *lines])


if sys.platform != "linux":
    raise SystemExit("the suite runs on Linux only")
