"""Checks a parser before it is deployed: it can be imported, reads its own sample events, and what the former one reads.

A process of its own does this (`python -m fogline_cloud.parser_kit.parser_check`), with limits, and the parsers run in its
children as they do in the flow.
"""

import os
import re
import resource
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import msgspec
from deltalake.exceptions import DeltaError

from fogline.errors import Misconfigured
from fogline.events.event import Event
from fogline_cloud.flows.bodies.body_folder import BodyFolder, bodies_in
from fogline_cloud.flows.deployed.loaded_parsers import DeployedParsers, LoadedParsers, former_name, load_parsers
from fogline_cloud.flows.deployed.parser_log import ParserLog
from fogline_cloud.flows.deployed.parser_set import ParserSet
from fogline_cloud.flows.deployed.trial import HARM, READ
from fogline_cloud.flows.deployed.trial_report import TrialReport, is_refuted
from fogline_cloud.flows.deployed.wheel import Wheel, read_wheel, unpack
from fogline_cloud.flows.parsers import checked_overrides, installed
from fogline_cloud.flows.parsers.ble.keys import NO_KEYS
from fogline_cloud.flows.replay.difference import ReadingCells, differences
from fogline_cloud.flows.sandbox.parser_runner import ParseResult
from fogline_cloud.flows.sandbox.task_parsers import TaskParsers
from fogline_cloud.flows.sandbox.time_limit import TimeLimit
from fogline_cloud.flows.tables.files import TableFolder, tables_in
from fogline_cloud.flows.worker.large_bodies import reading_bodies
from fogline_cloud.flows.worker.parser_choice import checked_rules, chooser
from fogline_cloud.parser_kit.recent_events import recent_events
from fogline_cloud.parser_kit.sample_events import read_events
from fogline_cloud.settings import CloudSettings
from fogline_cloud.store.options import storage_of

LIMIT_S = 90.0
"""Time that a check may take."""
MEMORY_MIB = 256
"""Memory that a parser may take in a check, if `[flow] parse_memory_mib` does not allow less."""
_CPU_S = 60
_FILE_BYTES = 256 << 20
_MOST_NOTES = 20


class CheckRequest(msgspec.Struct, frozen=True):
    """What to check: the parser `name` of a set, beside its former one. The files are in the store already."""

    settings: CloudSettings
    name: str
    parsers: ParserSet


class ValueChange(msgspec.Struct, frozen=True):
    """A count of values that came, went or changed."""

    metric: str
    change: str
    values: int


class ParserCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The result. `tests`: outcomes of the wheel's own sample events. `recent`: of the last events in table `raw`.

    `former`: outcomes of the former parser for the same events. `changes`: values that differ. `problems`: why the parser must
    not be deployed; none if it may.
    """

    tests: dict[str, int] = {}
    recent: dict[str, int] = {}
    former: dict[str, int] = {}
    changes: list[ValueChange] = []
    notes: list[str] = []
    problems: list[str] = []


def check_parser(request: CheckRequest) -> ParserCheck:
    """Check a parser, in the main thread. Raises `Misconfigured` and `Unreachable` if the store cannot be read."""
    settings, name = request.settings, request.name
    wanted, log = request.parsers.parsers[name], ParserLog(settings)
    data = log.file(wanted.digest)
    wheel = read_wheel(data)
    only = DeployedParsers(ParserSet(request.parsers.number, {name: wanted}), TableFolder(log.place, storage_of(settings)))
    loaded = load_parsers(only, NO_KEYS, _memory_bytes(settings))
    problems = [*_missing(wheel), *(each.failure for each in loaded.failures)]
    if problems:
        return ParserCheck(problems=problems)
    with tempfile.TemporaryDirectory() as folder:
        unpack(data, Path(folder))
        tests = [event for each in wheel.events for event in read_events(Path(folder, each))]
    tested = _results(loaded, name, tests, settings)
    failed = [(event, result) for event, result in zip(tests, tested, strict=True) if result.outcome not in READ]
    problems += [f"its sample event {event.id} is {_text(result)}" for event, result in failed[:_MOST_NOTES]]
    found = ParserCheck(tests=_outcomes(tested), problems=problems, notes=[] if tests else ["the wheel has no sample events"])
    return _beside_former(request, loaded, found)


def _beside_former(request: CheckRequest, loaded: LoadedParsers, found: ParserCheck) -> ParserCheck:
    settings, name = request.settings, request.name
    wanted = request.parsers.parsers[name]
    try:
        events = _recent(request)
    except (DeltaError, OSError, Misconfigured) as error:
        note = f"table raw cannot be read, so nothing was compared: {str(error).partition(chr(10))[0]}"
        return msgspec.structs.replace(found, notes=[*found.notes, note])
    now = _results(loaded, name, events, settings)
    found = msgspec.structs.replace(found, recent=_outcomes(now))
    if name not in loaded.trials:
        return msgspec.structs.replace(found, notes=[*found.notes, "there is no former parser to compare with"])
    before = _results(loaded, former_name(name), events, settings)
    left = [(old, new) for old, new in zip(before, now, strict=True) if old.outcome in READ and new.outcome not in READ]
    harmed = any(new.reason in HARM for _, new in left)
    counted = [] if wanted.accept_dead else left
    problems = list(found.problems)
    if is_refuted(TrialReport(name, wanted.digest, len(events), len(counted), harmed)):
        problems.append(
            f"of the last {len(events)} events only the former parser reads {len(left)}; the first is {_text(left[0][1])}"
            + ("" if harmed else ". If that is meant, deploy it with --accept-dead")
        )
    changes = Counter(change for pair in zip(before, now, strict=True) for change in differences(*map(_cells, pair)))
    listed = [ValueChange(metric, change, count) for (metric, change), count in changes.most_common()]
    return msgspec.structs.replace(found, former=_outcomes(before), changes=listed, problems=problems)


def _recent(request: CheckRequest) -> list[Event]:
    settings, given = request.settings, request.parsers
    known = {*installed(), *given.parsers}
    overrides = checked_overrides(settings.flow.parsers, given.parsers)
    choose = chooser(overrides, checked_rules(settings.flow.parser_rules, known), given.content_types)
    raw = tables_in(settings.flow.tables, storage_of(settings)).raw
    return recent_events(raw, settings.tenant, choose, request.name)


def _results(loaded: LoadedParsers, name: str, events: Sequence[Event], settings: CloudSettings) -> list[ParseResult]:
    flow = settings.flow
    bodies = BodyFolder(bodies_in(flow.tables, storage_of(settings)))
    with TimeLimit(flow.parse_limit_ms / 1000) as limit, reading_bodies(bodies):
        parsers = TaskParsers(loaded.parsers, limit, _memory_bytes(settings), {name}, flow.max_readings)
        return parsers.results([(name, event) for event in events])


def _memory_bytes(settings: CloudSettings) -> int:
    return min(settings.flow.parse_memory_mib, MEMORY_MIB) << 20


def _missing(wheel: Wheel) -> Iterator[str]:
    """Yield what the wheel requires, and this machine lacks."""
    for each in wheel.requires:
        name = re.match(r"[A-Za-z0-9._-]+", each.strip())
        if name is None or "extra" in each.partition(";")[2]:
            continue
        try:
            distribution(name[0])
        except PackageNotFoundError:
            yield f"it requires {each}, which is not installed beside the flow: a deployed wheel brings no other packages"


def _cells(result: ParseResult) -> list[ReadingCells]:
    return [ReadingCells(*each[1:]) for each in result.readings]


def _outcomes(results: Sequence[ParseResult]) -> dict[str, int]:
    return dict(Counter(each.outcome.value for each in results))


def _text(result: ParseResult) -> str:
    return f"{result.outcome} ({result.reason}): {(result.detail or '').strip()[-300:]}"


def main() -> None:
    """Read a request from standard input, and write its result to standard output."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a parser may print
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_S, _CPU_S))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_FILE_BYTES, _FILE_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError):  # a service may forbid it
        os.nice(10)
    with out:
        out.write(msgspec.json.encode(check_parser(msgspec.json.decode(sys.stdin.buffer.read(), type=CheckRequest))))


if __name__ == "__main__":
    main()
