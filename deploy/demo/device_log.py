"""What devices write down of themselves: commands that they executed, and connections that they lost. Pure but for `read_log`.

A line is `SECONDS DEVICE did COMMAND` or `SECONDS DEVICE lost`, with the seconds of `time.time()`. All parts of a run are on
one machine, so its clock compares them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

Effects = Mapping[tuple[str, str], Sequence[float]]
"""The times of each execution, by device and command."""


@dataclass(frozen=True, slots=True)
class DeviceLog:
    """`effects`: see `Effects`. `lost`: the times at which each device lost its connection."""

    effects: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    lost: dict[str, list[float]] = field(default_factory=dict)


def did_line(at_s: float, device: str, command: str) -> str:
    """Return the line of an executed command."""
    return f"{at_s:.3f} {device} did {command}\n"


def lost_line(at_s: float, device: str) -> str:
    """Return the line of a lost connection."""
    return f"{at_s:.3f} {device} lost\n"


def parse_log(lines: Iterable[str]) -> DeviceLog:
    """Parse the lines of one or several devices. A line that was cut off within its command counts as another command."""
    log = DeviceLog()
    for line in lines:
        match line.split():
            case [at_s, device, "did", command]:
                log.effects.setdefault((device, command), []).append(float(at_s))
            case [at_s, device, "lost"]:
                log.lost.setdefault(device, []).append(float(at_s))
    return log


def read_log(*files: Path) -> DeviceLog:
    """Read the files that exist."""
    return parse_log(line for file in files if file.exists() for line in file.read_text("utf-8").splitlines())
