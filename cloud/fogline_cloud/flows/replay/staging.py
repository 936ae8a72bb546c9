"""Files that a replay writes, in a worker: rows that are different now, and rows that stay beside them. No Spark is needed.

The files are in the tables' folders, and count as soon as a commit names them.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from itertools import chain
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from fogline_cloud.flows.replay.difference import Difference
from fogline_cloud.flows.replay.reparse import CHANGED, DIFFERENCES, WAS
from fogline_cloud.flows.replay.stored import Coverage
from fogline_cloud.flows.tables.batch import File
from fogline_cloud.flows.tables.files import FileWriter, TableFolder
from fogline_cloud.flows.tables.schema import MEASURED, STORED, conformed
from fogline_cloud.flows.worker.derive import READINGS, reading_rows
from fogline_cloud.flows.worker.tasks import reply


class ReplayFolders(msgspec.Struct, frozen=True):
    """Folders of the tables that get files."""

    events: TableFolder
    readings: TableFolder


class OutcomeChange(msgspec.Struct, frozen=True):
    """A count of events that are different now, by former and new outcome."""

    was: str
    now: str
    events: int


class StagedReplay(msgspec.Struct, frozen=True):
    """Result of tasks. `rows`: rows that they read. `touched`: day, run and number of micro-batches with a changed event.

    `coverage`: of `stored.read_stored`.
    """

    rows: int = 0
    events: list[File] = []
    readings: list[File] = []
    outcomes: list[OutcomeChange] = []
    differences: list[Difference] = []
    touched: list[tuple[date, str, int]] = []
    coverage: list[Coverage] = []


def joined(every: Sequence[StagedReplay]) -> StagedReplay:
    """Return the results of tasks as one."""
    outcomes, differences = Counter[tuple[str, str]](), Counter[tuple[str, str, str, str]]()
    for one in chain.from_iterable(each.outcomes for each in every):
        outcomes[one.was, one.now] += one.events
    for each in chain.from_iterable(each.differences for each in every):
        differences[each.parser, each.type, each.metric, each.change] += each.values
    return StagedReplay(
        sum(each.rows for each in every),
        [file for each in every for file in each.events],
        [file for each in every for file in each.readings],
        [OutcomeChange(*key, count) for key, count in sorted(outcomes.items())],
        [Difference(*key, count) for key, count in sorted(differences.items())],
        sorted({one for each in every for one in each.touched}),
        [one for each in every for one in each.coverage],
    )


def counted(batches: Iterable[pa.RecordBatch], rows: list[int]) -> Iterator[pa.RecordBatch]:
    """Yield the batches, and append their sizes to `rows`."""
    for each in batches:
        rows.append(each.num_rows)
        yield each


def stage_changed(
    folders: ReplayFolders,
    below: str | None,
    rows: list[int],
    batches: Iterable[pa.RecordBatch],
    coverage: Sequence[Coverage] = (),
) -> Iterator[pa.RecordBatch]:
    """Write rows that are different now, and their readings. `batches`: columns `reparse.CHANGED`. `rows`: see `counted`.

    `below`: a folder within the tables', for temporary files; `None`: write nothing.
    """
    outcomes, differences = Counter[tuple[str, str]](), Counter[tuple[str, str, str, str]]()
    touched = set[tuple[date, str, int]]()
    with (
        FileWriter(folders.events, MEASURED["events"], below or "") as events,
        FileWriter(folders.readings, MEASURED["readings"], below or "") as readings,
    ):
        for each in batches:
            table = conformed(pa.Table.from_batches([each]), CHANGED)
            outcomes.update(zip(*(table.column(name).to_pylist() for name in (WAS, "outcome")), strict=True))
            differences.update(_differences(table))
            days = table.column("ingested").cast(pa.date32()).to_pylist()
            touched.update(zip(days, table.column("run").to_pylist(), table.column("batch").to_pylist(), strict=True))
            if below is not None:
                changed = table.select(STORED.names)
                _extend(events, changed, STORED)
                _extend(readings, reading_rows(changed), READINGS)
        yield reply(
            StagedReplay(
                sum(rows),
                events.close(),
                readings.close(),
                [OutcomeChange(*key, count) for key, count in outcomes.items()],
                [Difference(*key, count) for key, count in differences.items()],
                list(touched),
                list(coverage),
            )
        )


def keep_events(folders: ReplayFolders, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write rows of `events` as they are."""
    with FileWriter(folders.events, MEASURED["events"]) as events:
        for each in batches:
            _extend(events, pa.Table.from_batches([each]), STORED)
        yield reply(StagedReplay(0, events.close()))


def keep_readings(folders: ReplayFolders, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write rows of `readings` as they are."""
    with FileWriter(folders.readings, MEASURED["readings"]) as readings:
        for each in batches:
            _extend(readings, pa.Table.from_batches([each]), READINGS)
        yield reply(StagedReplay(0, [], readings.close()))


def stage_rows(folders: ReplayFolders, below: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write rows of `events` to a folder within the table's, for a later step."""
    with FileWriter(folders.events, (), below) as events:
        for each in batches:
            events.add(each)
        yield reply(StagedReplay(0, events.close()))


def _extend(writer: FileWriter, rows: pa.Table, columns: pa.Schema) -> None:
    """Add rows: our columns, then a user's own."""
    found = conformed(rows, columns)
    for name in rows.column_names:
        if name not in columns.names and name != "day":
            found = found.append_column(name, rows.column(name))
    for each in found.to_batches():
        writer.add(each)


def _differences(rows: pa.Table) -> Iterator[tuple[str, str, str, str]]:
    """Yield parser, type, metric and change of each value that differs."""
    lists = rows.column(DIFFERENCES).combine_chunks()
    of_event, flat = pc.list_parent_indices(lists), pc.list_flatten(lists)
    owners: list[list[Any]] = [pc.fill_null(rows.column(name).take(of_event), "").to_pylist() for name in ("parser", "type")]
    return zip(*owners, *(pc.struct_field(flat, name).to_pylist() for name in ("metric", "change")), strict=True)
