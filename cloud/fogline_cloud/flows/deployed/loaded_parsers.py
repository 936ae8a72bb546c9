"""The parsers of one task: the installed ones, and in front of them the deployed ones of its micro-batch.

A deployed parser is imported in a child process first, because an import may end its process or never return. One that cannot
be imported is replaced by the former one, and reported.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import msgspec

from fogline.errors import Poison
from fogline.events.event import Event, Lane, TimeQuality
from fogline_cloud.flows.deployed.isolated_import import IsolatedPackage, beside_isolated
from fogline_cloud.flows.deployed.parser_set import DeployedParser, Digest, ParserSet, retained
from fogline_cloud.flows.deployed.trial_report import TrialReport
from fogline_cloud.flows.deployed.unpacked import WrongFile, read_file, unpacked
from fogline_cloud.flows.deployed.wheel import read_wheel
from fogline_cloud.flows.parsers import Leftover, Parser, Reading, installed
from fogline_cloud.flows.parsers.ble.keys import DeviceKeys, keyed
from fogline_cloud.flows.sandbox.child import run_in_child
from fogline_cloud.flows.sandbox.parser_runner import ParseResult, detail_text
from fogline_cloud.flows.tables.files import TableFolder
from fogline_cloud.flows.tables.schema import EventOutcome

IMPORT_LIMIT_S = 20.0
"""Time that the import of a deployed parser may take."""
MISSING = "no-parser"
"""Reason of an event whose parser was withdrawn and is not installed."""


class DeployedParsers(msgspec.Struct, frozen=True):
    """The deployed parsers of one micro-batch, and the folder that has their files. All of its tasks get the same."""

    set: ParserSet = ParserSet()
    folder: TableFolder = TableFolder("")

    def names(self) -> frozenset[str]:
        """Return the names under which `load_parsers` returns parsers."""
        return frozenset({*installed(), *self.set.parsers, *map(former_name, self.set.parsers)})


def former_name(name: str) -> str:
    """Return the name under which the former parser runs beside the new one. No parser has such a name."""
    return f"{name} (former)"


@dataclass(frozen=True)
class LoadedParsers:
    """Parsers by name. `digests`: of the deployed ones. `trials`: those with a former one beside them.

    `failures`: deployed parsers that cannot be used here; each has the former one in its place.
    """

    parsers: dict[str, Parser]
    digests: dict[str, Digest] = field(default_factory=dict)
    trials: dict[str, DeployedParser] = field(default_factory=dict)
    failures: list[TrialReport] = field(default_factory=list)


def load_parsers(deployed: DeployedParsers, keys: DeviceKeys, memory_bytes: int) -> LoadedParsers:
    """Load the parsers. Raises `OSError` if the store is away. `memory_bytes`: that an import may take."""
    ours = keyed(installed(), keys)
    if not deployed.set.parsers:
        return LoadedParsers(ours)
    found = LoadedParsers({name: beside_isolated(parser) for name, parser in ours.items()})
    loader = _Loader(deployed, memory_bytes, dict(found.parsers))
    for name, each in deployed.set.parsers.items():
        _add(found, name, each, loader)
    return found


def _add(found: LoadedParsers, name: str, wanted: DeployedParser, loader: "_Loader") -> None:
    former = None
    if wanted.former is not None:
        try:
            former = loader.load(name, wanted.former)
        except (WrongFile, _NotLoaded):  # nothing is left to compare with
            former = loader.installed(name)
    try:
        parser, digest = loader.load(name, wanted.digest) or _missing, wanted.digest
    except (WrongFile, _NotLoaded) as error:
        found.failures.append(TrialReport(name, wanted.digest, failure=str(error)))
        parser, digest = former or loader.installed(name) or _missing, wanted.former or ""
        former = None
    found.parsers[name] = parser
    if digest:
        found.digests[name] = digest
    if former is not None:
        found.parsers[former_name(name)] = former
        found.trials[name] = wanted
        if wanted.former:
            found.digests[former_name(name)] = wanted.former


class _NotLoaded(Exception):
    """A parser cannot be imported. The message says why."""


class _Loader:
    """Loads parsers for one task. `ours`: the installed ones."""

    _packages: ClassVar[dict[Digest, tuple[IsolatedPackage, dict[str, str]]]] = {}  # of this process
    _parsers: ClassVar[dict[tuple[Digest, str], Parser]] = {}

    def __init__(self, deployed: DeployedParsers, memory_bytes: int, ours: Mapping[str, Parser]) -> None:
        self._folder = deployed.folder
        self._memory_bytes = memory_bytes
        self._ours = ours
        needed = retained(deployed.set.parsers)
        for digest in self._packages.keys() - needed:  # a worker sees many deployments
            del self._packages[digest]
        for key in [key for key in self._parsers if key[0] not in needed]:
            del self._parsers[key]

    def installed(self, name: str) -> Parser | None:
        return self._ours.get(name)

    def load(self, name: str, digest: Digest) -> Parser | None:
        """Return the parser of a wheel, or for "" the installed one. Raises `WrongFile`, `_NotLoaded`, and `OSError`."""
        if not digest:
            return self.installed(name)
        if (digest, name) not in self._parsers:  # a failure is tried again by the next task
            self._parsers[digest, name] = self._import(digest, name)
        return self._parsers[digest, name]

    def _import(self, digest: Digest, name: str) -> Parser:
        package, targets = self._package(digest)
        if name not in targets:
            raise _NotLoaded(f"the wheel has no entry point {name}")

        def imported(_: str, __: Event) -> ParseResult:
            try:
                package.parser(targets[name])
            except BaseException as error:  # noqa: BLE001 - a plugin's module may raise anything while it is imported
                return ParseResult(EventOutcome.DEAD, detail=detail_text(f"it cannot be imported: {error!r}"))
            return ParseResult(EventOutcome.OK)

        results, _ = run_in_child(imported, [(name, _NO_EVENT)], silence_s=IMPORT_LIMIT_S, memory_bytes=self._memory_bytes)
        if results[0].outcome is not EventOutcome.OK:
            raise _NotLoaded(results[0].detail)
        return package.parser(targets[name])

    def _package(self, digest: Digest) -> tuple[IsolatedPackage, dict[str, str]]:
        if digest not in self._packages:
            data = read_file(self._folder, digest)
            try:
                wheel = read_wheel(data)
            except Poison as error:
                raise _NotLoaded(str(error)) from None
            self._packages[digest] = IsolatedPackage(unpacked(data, digest), wheel.modules), wheel.parsers
        return self._packages[digest]


def _missing(event: Event) -> Iterator[Reading | Leftover]:
    """Stand for a parser that was withdrawn: the event can be parsed again once there is one."""
    raise Poison(MISSING, f"the parser for content type {event.content_type} was withdrawn, and none of its name is installed")


_NO_EVENT = Event(
    id="",
    tenant="",
    device="",
    type="",
    subject="",
    recordedtime="",
    content_type="",
    data=b"",
    gateway="",
    stream="",
    sequence=0,
    lane=Lane.TELEMETRY,
    timequality=TimeQuality.SYNCED,
    dedup="",
    adapter="",
)
"""Stands for the event of a call that is no parsing."""
