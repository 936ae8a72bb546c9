"""Images of files after a power cut: every state that a record of `disk` allows, one after the other.

Synced data is always there. Of the writes since a file's last sync any subset may be there, whole or torn at sectors; the
new length may be there without the bytes. Writes before a failed sync may be lost for ever, whatever is synced later. A
file name is in its state of the folder's last sync, or in any later one.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count, pairwise
from pathlib import Path
from random import Random

from fogline_lab.disk import DiskOperation, Step

SECTORS = (512, 4096)

Piece = tuple[int, int, int]
"""The bytes `[from, to)` of the write of the step with this number."""
Cut = Callable[[int], list[Piece]]
"""Returns the pieces that survive of the step with this number."""
Names = dict[str, int]


@dataclass(frozen=True, slots=True)
class Image:
    """Files after a power cut. `cut`: number of steps before it; `how`: the unsynced data that survived, as text."""

    cut: int
    how: str
    files: dict[str, bytes]

    def write(self, folder: Path) -> None:
        """Replace the files of the folder by the image."""
        for former in folder.iterdir():
            former.unlink()
        for name, content in self.files.items():
            (folder / name).write_bytes(content)


@dataclass(slots=True)
class _File:
    """`safe`: synced content; `since`: steps after it. `kept`: steps that were synced though an earlier one was not.

    `doubtful`: steps before a failed sync. `syncs`: number of syncs.
    """

    safe: bytearray = field(default_factory=bytearray)
    since: list[int] = field(default_factory=list)
    kept: set[int] = field(default_factory=set)
    doubtful: set[int] = field(default_factory=set)
    syncs: int = 0


@dataclass(frozen=True, slots=True)
class _Choice:
    """One surviving state: the file of each name, and the pieces of each file beside its safe content."""

    how: str
    names: Names
    pieces: dict[int, list[Piece]]


class PowerCut:
    """Follows a record and yields the images of a cut at each step.

    `samples`: random images a step, by `seed`. `every`: make only one image in so many.
    """

    def __init__(self, record: Sequence[Step], *, seed: int = 1, samples: int = 2, every: int = 1) -> None:
        self._record = record
        self._random = Random(seed)
        self._samples = samples
        self._every = every
        self._files: list[_File] = []
        self._names: Names = {}
        self._safe_names: Names = {}
        self._renamed: list[tuple[str, int | None]] = []
        self._beside: dict[str, bytes] = {}
        self._seen: set[object] = set()

    def images(self) -> Iterator[Image]:
        """Yield every image once; again only after a note, because more is demanded of it then."""
        numbers = count()
        for cut, step in enumerate(self._record):
            self._follow(cut, step)
            for how, names, survives in self._choices():
                if next(numbers) % self._every:
                    continue
                choice = _Choice(how, names, self._pieces(survives))
                if self._is_new(choice):
                    files = {name: self._content(number, choice) for name, number in choice.names.items()}
                    yield Image(cut + 1, choice.how, {**files, **self._beside})

    # --- the steps

    def _follow(self, number: int, step: Step) -> None:
        match step.kind:
            case DiskOperation.CREATE:
                self._files.append(_File())
                self._rename(step.file, len(self._files) - 1)
            case DiskOperation.DELETE:
                self._rename(step.file, None)
            case DiskOperation.WRITE | DiskOperation.TRUNCATE:
                self._files[self._names[step.file]].since.append(number)
            case DiskOperation.SYNC:
                file = self._files[self._names[step.file]]
                file.syncs += 1
                file.kept.update(set(file.since) - file.doubtful)
                if not file.doubtful:
                    self._apply(file.safe, [piece for each in file.since for piece in self._whole(each)])
                    file.since, file.kept = [], set()
            case DiskOperation.SYNC_FAILED:
                file = self._files[self._names[step.file]]
                file.doubtful.update(set(file.since) - file.kept)
            case DiskOperation.SYNC_FOLDER:
                self._safe_names, self._renamed = dict(self._names), []
            case DiskOperation.BESIDE:
                self._beside[step.file] = step.data
            case DiskOperation.NOTE:
                self._seen.clear()

    def _rename(self, name: str, file: int | None) -> None:
        _point(self._names, name, file)
        self._renamed.append((name, file))

    # --- surviving states

    def _choices(self) -> Iterator[tuple[str, Names, Cut]]:
        unsynced = [step for file in self._files for step in file.since if step not in file.kept]
        for names in (self._safe_names, self._names) if self._renamed else (self._names,):
            yield "nothing unsynced", names, _nothing
            yield "everything", names, self._whole
            yield "lengths alone", names, self._length
        for end in unsynced:
            yield f"all before step {end}", self._names, partial(self._before, end)
        for _ in range(self._samples if unsynced else 0):
            names, likely = self._any_names(), self._random.choice((0.2, 0.5, 0.8))
            yield "some", names, partial(self._some, likely, self._whole)
            torn = partial(self._sectors, self._random.choice(SECTORS))
            yield "torn", names, partial(self._some, likely, torn)

    def _any_names(self) -> Names:
        """Return each name in its safe state, or as any of the later steps left it."""
        names = dict(self._safe_names)
        for name in {name for name, _ in self._renamed}:
            steps = [file for each, file in self._renamed if each == name]
            for file in steps[: self._random.randint(0, len(steps))]:
                _point(names, name, file)
        return names

    def _pieces(self, cut: Cut) -> dict[int, list[Piece]]:
        """Return the pieces of each file: synced steps whole, the others as `cut` says."""
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
        if step.kind is DiskOperation.TRUNCATE:
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
            if step.kind is DiskOperation.TRUNCATE:
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
