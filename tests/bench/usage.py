"""What a process has used: processor time, bytes and calls of writing, syncs, memory. By the kernel's own accounting.

`MeteredChild` runs a program under `metered.py`, so that the end of the program is included.
"""

import json
import os
import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

SYNCS = "BENCH_SYNCS"
"""The environment variable that names the file in which count_syncs.c counts."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Totals of one process since its start. `write_bytes`: of pages that it dirtied on a disk's file system."""

    cpu_s: float
    write_bytes: int
    write_calls: int
    syncs: int
    peak_rss_bytes: int = 0

    def since(self, before: "Usage") -> "Usage":
        """Return what was used after `before`; the peak of memory stays."""
        return Usage(
            self.cpu_s - before.cpu_s,
            self.write_bytes - before.write_bytes,
            self.write_calls - before.write_calls,
            self.syncs - before.syncs,
            self.peak_rss_bytes,
        )


def read_usage(pid: int, syncs: Path, peak_rss_bytes: int = 0) -> Usage:
    """Read the usage of a process that runs, or has ended and was not waited for. Its children do not count."""
    proc = Path(f"/proc/{pid}")
    ticks = sum(map(int, (proc / "stat").read_text().rpartition(")")[2].split()[11:13]))
    io = dict(line.split(": ") for line in (proc / "io").read_text().splitlines())
    (counted,) = struct.unpack("q", syncs.read_bytes())
    cpu_s = ticks / os.sysconf("SC_CLK_TCK")
    return Usage(cpu_s, int(io["write_bytes"]), int(io["syscw"]), counted, peak_rss_bytes)


def make_counter(folder: Path, name: str) -> Path:
    """Make the file of a counter of syncs."""
    path = folder / f"{name}.syncs"
    path.write_bytes(struct.pack("q", 0))
    return path


def write_report(usage: Usage, path: Path) -> None:
    """Write a usage to a file."""
    path.write_text(json.dumps(asdict(usage)))


def read_report(path: Path) -> Usage:
    """Read what `write_report` wrote."""
    return Usage(**json.loads(path.read_text()))


def counting_environment(library: Path, syncs: Path) -> Mapping[str, str]:
    """The environment in which a program counts its syncs."""
    return {"LD_PRELOAD": str(library), SYNCS: str(syncs)}
