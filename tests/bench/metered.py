"""Runs a program and writes down what it used in all, its end included.

    python tests/bench/metered.py LIBRARY SYNCS REPORT COMMAND...

The program counts its syncs in the file SYNCS by means of LIBRARY (count_syncs.c). SIGTERM is passed on to it. When it has
ended, and before the kernel forgets it, its usage goes into the file REPORT.
"""

import dataclasses
import os
import signal
import subprocess
import sys
from pathlib import Path

from usage import counting_environment, read_usage, write_report


def main() -> int:
    """Run the program to its end; returns its exit status."""
    library, syncs, report = map(Path, sys.argv[1:4])
    child = subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", "--", *sys.argv[4:]],
        env={**os.environ, **counting_environment(library, syncs)},
    )
    signal.signal(signal.SIGTERM, lambda *_: child.send_signal(signal.SIGTERM))
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    usage = read_usage(child.pid, syncs)
    _, status, resources = os.wait4(child.pid, 0)
    write_report(dataclasses.replace(usage, peak_rss_bytes=resources.ru_maxrss * 1024), report)
    return os.waitstatus_to_exitcode(status) & 0xFF


if __name__ == "__main__":
    sys.exit(main())
