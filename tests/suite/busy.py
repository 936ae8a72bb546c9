"""The tests beside CPU hogs: a test that fails here measures the machine."""

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from jobs import Job, run_job

HOG = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    for _ in range(1_000_000):\n        pass"
"""Uses a CPU until its parent has ended."""


def run(command: Sequence[str], others: Sequence[str], runs: int, hogs: int) -> int:
    """Run the tests `runs` times beside `hogs` processes, and print each test that failed. Returns the exit status."""
    failures: Counter[str] = Counter()
    shares: defaultdict[str, list[float]] = defaultdict(list)
    status = 0
    with tempfile.TemporaryDirectory() as folder, burning(hogs):
        for number in range(1, runs + 1):
            report = Path(folder) / f"{number}.json"
            result = run_job(Job("pytest", [*command, "--cpu-report", str(report), *others]))
            status = status or result.status
            print(f"run {number} of {runs}: exit status {result.status}, {result.wall_s:.0f} s", flush=True)
            for name, each in json.loads(report.read_text("utf-8")).items() if report.exists() else ():
                if each["failed"]:
                    failures[name] += 1
                    shares[name].append(each["cpu_s"] / max(each["wall_s"], 1e-9))
    load = " ".join(f"{each:.1f}" for each in os.getloadavg())
    print(f"\nbeside {hogs} hogs, load averages {load}: {len(failures)} tests failed in {runs} runs")
    for name, times in failures.most_common():
        share = sum(shares[name]) / len(shares[name])
        print(f"  failed {times} of {runs}, with {share:.0%} of a CPU: {name}")
    return int(bool(status or failures))


@contextmanager
def burning(hogs: int) -> Iterator[None]:
    """Let `hogs` processes use CPU time during the block."""
    started = [subprocess.Popen([sys.executable, "-c", HOG]) for _ in range(hogs)]
    try:
        yield
    finally:
        for hog in started:
            hog.kill()
            hog.wait()
