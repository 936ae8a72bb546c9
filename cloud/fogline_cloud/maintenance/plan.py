"""Decides which days are compacted, and which files of a Delta log nobody needs any more. Pure."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import date, datetime, timedelta

import msgspec

from fogline_cloud.flows.tables.change_reader import KEPT, ChangeReader

CLOSED_BYTES = 128 << 20
"""Size of the files of a closed day after compaction, about."""
SORTED_BYTES = 32 << 20
"""Size of the files of a closed day that is sorted, about: smaller ones, of which a query for one device skips more."""
SETTLED = timedelta(hours=6)
"""Time after the end of a day before it is sorted: a flow that was behind may still add rows to it."""
OPEN_BYTES = 16 << 20
"""Size of the files of the open day after compaction, about. It is small, so that few rows are written several times."""
MOST_CLOSED = 4
"""Number of small files that a closed day may keep."""
MOST_OPEN = 200
"""Number of small files that the open day may keep."""
_OF_VERSION = re.compile(r"(\d{20})\.(json|crc|checkpoint\..*parquet|\d{20}\.compacted\.json)")


class Compaction(msgspec.Struct, frozen=True):
    """One day to compact. `files`: number of its files, `small` ones of which are joined to files of `target_bytes`."""

    day: str
    files: int
    small: int
    target_bytes: int


def compactions(files: Iterable[tuple[date, int]], today: date, closed_bytes: int = CLOSED_BYTES) -> list[Compaction]:
    """Return the days to compact, the oldest first. `files`: day and size in bytes of each file. `today`: the day in UTC.

    `closed_bytes`: size of the files of a closed day after compaction. The open day is compacted too, but later: the time of a
    commit grows with the number of files.
    """
    sizes: dict[date, list[int]] = defaultdict(list)
    for day, size in files:
        sizes[day].append(size)
    found = []
    for day, each in sorted(sizes.items()):
        target, most = (closed_bytes, MOST_CLOSED) if day < today else (OPEN_BYTES, MOST_OPEN)
        small = sum(size < target // 2 for size in each)
        if small > most:
            found.append(Compaction(day.isoformat(), len(each), small, target))
    return found


def expired_log_files(names: Iterable[str], newest: int, keep_commits: int, readers: Iterable[ChangeReader] = ()) -> list[str]:
    """Return the files of a Delta log that only versions before the last `keep_commits` need, the oldest first.

    `newest`: the newest version. `readers`: what comes after their versions is kept. Everything before a complete checkpoint
    may go (Delta protocol, "Metadata Cleanup").
    """
    needed = min([newest - keep_commits, *(each.version for each in readers)])
    names = list(names)
    checkpoints = [int(name[:20]) for name in names if name.endswith(".checkpoint.parquet") and _OF_VERSION.fullmatch(name)]
    first = max((version for version in checkpoints if version <= needed), default=0)
    return sorted(name for name in names if (match := _OF_VERSION.fullmatch(name)) and int(match[1]) < first)


def entries_of(written: Mapping[str, datetime]) -> dict[int, datetime]:
    """Return when the entry of each version was written. `written`: when each file of the log was."""
    found = ((_OF_VERSION.fullmatch(name), moment) for name, moment in written.items())
    return {int(match[1]): moment for match, moment in found if match and match[2] == "json"}


def oldest_version(written: Mapping[str, datetime], at: datetime) -> int:
    """Return the version that was the newest one at a time, or else the oldest one that the log leads to.

    `written`: when each file of the log was written.
    """
    entries = entries_of(written)
    checkpoints = [int(name[:20]) for name in written if name.endswith(".checkpoint.parquet") and _OF_VERSION.fullmatch(name)]
    first = 0 if 0 in entries else min(checkpoints, default=0)
    return max([first, *(version for version, moment in entries.items() if moment <= at)])


def vacuum_after(days: float, readers: Iterable[ChangeReader], read_at_ms: Mapping[int, float], now: datetime) -> timedelta:
    """Return how long ago a file must have become unneeded to be deleted: `days`, or longer for readers that are behind.

    `read_at_ms`: time of the commit of each version that a reader has read, since 1970. A version that the log does not
    have any more counts as `KEPT`.
    """
    now_ms = int(now.timestamp() * 1000)
    behind = [
        timedelta(milliseconds=now_ms - read_at_ms[each.version]) if each.version in read_at_ms else KEPT for each in readers
    ]
    return max([timedelta(days=days), *(min(each, KEPT) for each in behind)])
