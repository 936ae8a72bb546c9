"""Commits that a process made to one table's log, read back to see if another program has overwritten one.

A store with put-if-absent refuses to overwrite a commit, but a program may not ask for it: Spark's default log store on S3
looks whether an entry exists, and then writes it. Such a program can erase a commit that came between the two.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from fogline_cloud.flows.tables.batch import File
from fogline_cloud.flows.tables.files import count_rows
from fogline_cloud.flows.tables.owner import Owner

SETTLED_S = 60.0
"""Time after which an entry of the log is read back a second time: no other program writes for so long."""

ReadEntry = Callable[[int], bytes | None]
"""Return the content of the log's entry of a version, `None` if there is none."""


class OwnCommit(msgspec.Struct, frozen=True, kw_only=True):
    """One commit. `id`: unique, in the commit information. `marks`: its Delta transactions. `batch`: the mark of its batch."""

    id: str
    files: Sequence[File]
    marks: Mapping[str, int]
    batch: str = ""

    @property
    def text(self) -> str:
        """What the commit held, for a log line."""
        days = sorted({each.day for each in self.files})
        rows = f"{count_rows(self.files)} rows{f' of {days[0]} to {days[-1]}' if days else ''}"
        return f"{f'batch {self.marks[self.batch]}' if self.batch else 'the start of the flow'} ({rows})"


class _Unsettled(msgspec.Struct):
    commit: OwnCommit
    after: int  # the version that it followed, or a later one that is not its own
    made_s: float
    version: int | None = None  # once it was read back


class OwnCommits:
    """The commits of one process to one table that another program may still overwrite. Not thread-safe.

    `owner`: the owner under whom the last of them was made.
    """

    def __init__(self, read: ReadEntry) -> None:
        self.owner: Owner | None = None
        self._read = read
        self._unsettled: list[_Unsettled] = []

    def add(self, commit: OwnCommit, after: int, now_s: float) -> None:
        """Note a commit that was made after the version `after`. `now_s`: seconds of any steady clock."""
        self._unsettled.append(_Unsettled(commit, after, now_s))

    def holds(self, commit: OwnCommit, after: int, newest: int) -> bool:
        """Return True if one of the versions from after `after` to `newest` is this commit."""
        return self._find(commit, after, newest)[0] is not None

    def overwritten(self, newest: int, now_s: float) -> list[tuple[OwnCommit, int]]:
        """Return the commits that the log up to version `newest` does not hold any more, until they are forgotten.

        With each: the version at which it was, or the first one at which it may have been. Reads back the last commit, and
        those that are `SETTLED_S` old. If the log was cut off after a commit, nothing is known of it.
        """
        found = [(each, self._was_overwritten(each, newest, now_s)) for each in self._unsettled]
        self._unsettled = [each for each, overwritten in found if overwritten or now_s - each.made_s < SETTLED_S]
        return [(each.commit, each.after + 1 if each.version is None else each.version) for each, lost in found if lost]

    def forget(self, commit: OwnCommit) -> None:
        """Forget a commit that was repeated."""
        self._unsettled = [each for each in self._unsettled if each.commit is not commit]

    def _was_overwritten(self, each: _Unsettled, newest: int, now_s: float) -> bool:
        if each.version is None:
            each.version, cut_off = self._find(each.commit, each.after, newest)
            return each.version is None and not cut_off
        if now_s - each.made_s < SETTLED_S:
            return False
        content = self._read(each.version)
        return content is not None and not _is(each.commit, content)

    def _find(self, commit: OwnCommit, after: int, newest: int) -> tuple[int | None, bool]:
        """Return the commit's version, `None` if no entry holds it; and whether entries are missing."""
        cut_off = False
        for version in range(after + 1, newest + 1):
            content = self._read(version)
            if content is None:
                cut_off = True
            elif _is(commit, content):
                return version, cut_off
        return None, cut_off


def removed_paths(entries: Iterator[bytes | None]) -> set[str]:
    """Return the paths of files that these entries of a log remove."""
    lines = (line for content in entries if content for line in content.splitlines() if line.startswith(b'{"remove"'))
    return {msgspec.json.decode(line)["remove"]["path"] for line in lines}


def _is(commit: OwnCommit, content: bytes) -> bool:
    return commit.id.encode() in content
