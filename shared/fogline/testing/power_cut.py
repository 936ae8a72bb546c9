"""What a power cut may leave of files: every image that a record of `disk` allows, one after the other.

What was synced is there. Of what a file got since its last sync any part may be there, in any order, whole or torn at
sectors; so may its new length without the bytes. What a failed sync left out may be missing for ever, whatever is synced
later. A name that came or went is as its folder was last synced, or as anything that happened to it since then made it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from random import Random

from fogline.testing.disk import Kind, Step

SECTORS = (512, 4096)

Piece = tuple[int, int, int]
"""The bytes `[from, to)` of what the step with this number wrote."""
Cut = Callable[[int], list[Piece]]
"""What is there of the step with this number."""
Names = dict[str, int]


@dataclass(frozen=True, slots=True)
class Image:
    """Files as they may be found. `cut`: how many steps were done; `how`: what of the unsynced is there, in words."""

    cut: int
    how: str
    files: dict[str, bytes]

    def write(self, folder: Path) -> None:
        """Put the files there, and nothing else of theirs."""
        for former in folder.iterdir():
            former.unlink()
        for name, content in self.files.items():
            (folder / name).write_bytes(content)


@dataclass(slots=True)
class _File:
    """`safe` is what was synced, `since` the steps after it; of these `kept` were synced too, but not all before them.

    `doubtful`: what a failed sync left out. `syncs`: how many there were.
    """

    safe: bytearray = field(default_factory=bytearray)
    since: list[int] = field(default_factory=list)
    kept: set[int] = field(default_factory=set)
    doubtful: set[int] = field(default_factory=set)
    syncs: int = 0


@dataclass(frozen=True, slots=True)
class _Choice:
    """What is there: which file a name means, and which pieces each file has beside what is safe."""

    how: str
    names: Names
    pieces: dict[int, list[Piece]]


class PowerCut:
    """Follows a record and offers what a cut may leave at each step. `samples`: random images a step, by `seed`."""

    def __init__(self, record: Sequence[Step], *, seed: int = 1, samples: int = 2) -> None:
        self._record = record
        self._random = Random(seed)
        self._samples = samples
        self._files: list[_File] = []
        self._names: Names = {}
        self._safe_names: Names = {}
        self._renamed: list[tuple[str, int | None]] = []
        self._beside: dict[str, bytes] = {}
        self._seen: set[object] = set()

    def images(self) -> Iterator[Image]:
        """Every image once; again only when a note came in between, since more is demanded of it then."""
        for cut, step in enumerate(self._record):
            self._follow(cut, step)
            for choice in self._choices():
                if self._is_new(choice):
                    files = {name: self._content(number, choice) for name, number in choice.names.items()}
                    yield Image(cut + 1, choice.how, {**files, **self._beside})

    # --- the steps

    def _follow(self, number: int, step: Step) -> None:
        match step.kind:
            case Kind.CREATE:
                self._files.append(_File())
                self._rename(step.file, len(self._files) - 1)
            case Kind.DELETE:
                self._rename(step.file, None)
            case Kind.WRITE | Kind.TRUNCATE:
                self._files[self._names[step.file]].since.append(number)
            case Kind.SYNC:
                file = self._files[self._names[step.file]]
                file.syncs += 1
                file.kept.update(set(file.since) - file.doubtful)
                if not file.doubtful:
                    self._apply(file.safe, [piece for each in file.since for piece in self._whole(each)])
                    file.since, file.kept = [], set()
            case Kind.SYNC_FAILED:
                file = self._files[self._names[step.file]]
                file.doubtful.update(set(file.since) - file.kept)
            case Kind.SYNC_FOLDER:
                self._safe_names, self._renamed = dict(self._names), []
            case Kind.BESIDE:
                self._beside[step.file] = step.data
            case Kind.NOTE:
                self._seen.clear()

    def _rename(self, name: str, file: int | None) -> None:
        _point(self._names, name, file)
        self._renamed.append((name, file))

    # --- what may be there

    def _choices(self) -> Iterator[_Choice]:
        unsynced = [step for file in self._files for step in file.since if step not in file.kept]
        for names in (self._safe_names, self._names) if self._renamed else (self._names,):
            yield _Choice("nothing unsynced", names, self._pieces(_nothing))
            yield _Choice("everything", names, self._pieces(self._whole))
            yield _Choice("lengths alone", names, self._pieces(self._length))
        for end in unsynced:
            yield _Choice(f"all before step {end}", self._names, self._pieces(partial(self._before, end)))
        for _ in range(self._samples if unsynced else 0):
            names, likely = self._any_names(), self._random.choice((0.2, 0.5, 0.8))
            yield _Choice("some", names, self._pieces(partial(self._some, likely, self._whole)))
            torn = partial(self._sectors, self._random.choice(SECTORS))
            yield _Choice("torn", names, self._pieces(partial(self._some, likely, torn)))

    def _any_names(self) -> Names:
        """Each name by itself: as it was safe, or as any of the steps since then left it."""
        names = dict(self._safe_names)
        for name in {name for name, _ in self._renamed}:
            steps = [file for each, file in self._renamed if each == name]
            for file in steps[: self._random.randint(0, len(steps))]:
                _point(names, name, file)
        return names

    def _pieces(self, cut: Cut) -> dict[int, list[Piece]]:
        """Of each file: what is synced, and what `cut` makes of the rest."""
        return {
            number: [piece for step in file.since for piece in (self._whole(step) if step in file.kept else cut(step))]
            for number, file in enumerate(self._files)
            if file.since
        }

    def _whole(self, step: int) -> list[Piece]:
        return [(step, 0, len(self._record[step].data))]

    def _length(self, step: int) -> list[Piece]:
        length = len(self._record[step].data)
        return [(step, length, length)]

    def _before(self, end: int, step: int) -> list[Piece]:
        return self._whole(step) if step < end else []

    def _some(self, likely: float, cut: Cut, step: int) -> list[Piece]:
        return [piece for piece in cut(step) if self._random.random() < likely]

    def _sectors(self, sector: int, number: int) -> list[Piece]:
        step = self._record[number]
        if step.kind is Kind.TRUNCATE:
            return self._whole(number)
        end = step.at + len(step.data)
        edges = [step.at, *range(step.at // sector * sector + sector, end, sector), end]
        return [(number, first - step.at, last - step.at) for first, last in pairwise(edges)]

    # --- images

    def _is_new(self, choice: _Choice) -> bool:
        files = ((name, number, self._files[number].syncs) for name, number in sorted(choice.names.items()))
        key = (*self._beside.values(), *((*file, tuple(choice.pieces.get(file[1], ()))) for file in files))
        known = key in self._seen
        self._seen.add(key)
        return not known

    def _content(self, number: int, choice: _Choice) -> bytes:
        content = bytearray(self._files[number].safe)
        self._apply(content, choice.pieces.get(number, []))
        return bytes(content)

    def _apply(self, content: bytearray, pieces: list[Piece]) -> None:
        for number, first, last in pieces:
            step = self._record[number]
            if step.kind is Kind.TRUNCATE:
                del content[step.at :]
                content.extend(bytes(step.at - len(content)))
            else:
                start = step.at + first
                content.extend(bytes(max(0, start - len(content))))
                content[start : start + last - first] = step.data[first:last]


def _nothing(_step: int) -> list[Piece]:
    return []


def _point(names: Names, name: str, file: int | None) -> None:
    if file is None:
        names.pop(name, None)
    else:
        names[name] = file
