"""One replay: rows are parsed again, compared, and replaced by one commit per table.

| step | action | after a kill, the same command |
|---|---|---|
| 1 | workers parse the selected rows again, and write files with those that are different now | begins anew |
| 2 | the driver counts what is different | |
| 3 | one commit to `readings` adds rows, or replaces the micro-batches that these rows belong to | finds the rows there |
| 4 | after a redrive, workers send the canonical records of events that are ok now | sends them again |
| 5 | one commit to `events` replaces these rows | finds the rows as they were, and repeats steps 1 to 5 |

`events` comes last, because it says what is left to do. Only micro-batches that the flow has finished are replaced, so the
flow goes on meanwhile. A commit replaces whole files; workers write what stays of them anew. `fogline table maintain` removes
files that no commit names.
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import date
from functools import partial
from time import monotonic
from uuid import uuid4

import msgspec
import pyarrow as pa
from deltalake import DeltaTable
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark uses

from fogline.errors import Misconfigured
from fogline_cloud.canonical_settings import CanonicalSettings
from fogline_cloud.flows.driver.retried_task import with_children
from fogline_cloud.flows.driver.table_creation import is_table
from fogline_cloud.flows.replay.difference import Difference
from fogline_cloud.flows.replay.landing import ROWS, FileChange, Landing
from fogline_cloud.flows.replay.micro_batches import micro_batches
from fogline_cloud.flows.replay.missing import as_changed, lowest_offsets, missing_records
from fogline_cloud.flows.replay.reparse import reparse
from fogline_cloud.flows.replay.selection import Selection
from fogline_cloud.flows.replay.staging import ReplayFolders, StagedReplay, counted, joined, stage_changed, stage_rows
from fogline_cloud.flows.replay.stored import Coverage, LowestOffsets, StoredRows, may_miss, read_stored
from fogline_cloud.flows.replay.swap import swap
from fogline_cloud.flows.replay.windows import Window, span_files, windows
from fogline_cloud.flows.tables.batch import MicroBatch
from fogline_cloud.flows.tables.delta_log import DeltaLog
from fogline_cloud.flows.tables.files import TableFolder, delete_below, tables_in
from fogline_cloud.flows.tables.schema import STORED, EventOutcome, conformed
from fogline_cloud.flows.tables.table_features import reader_problems
from fogline_cloud.flows.tables.table_history import others_since
from fogline_cloud.flows.tables.table_log import state_of
from fogline_cloud.flows.worker.derive import canonical_records
from fogline_cloud.flows.worker.parse import Plan, parse
from fogline_cloud.flows.worker.publish import publish
from fogline_cloud.flows.worker.tasks import REPLY
from fogline_cloud.settings import CloudSettings, Scalar
from fogline_cloud.store.options import storage_of

TRIES = 4
"""Number of tries of a commit, in all, while other commits remove the same files."""


class Replayed(msgspec.Struct, frozen=True):
    """Result of a replay. `selected`: events with a row; those without a record stay as they are.

    `outcomes`: events that are different now, by former and new outcome (`dead -> ok`). `seconds`: from the plan of the first
    step to the last commit.
    """

    selected: int
    changed: int
    outcomes: dict[str, int]
    differences: list[Difference]
    seconds: float = 0.0


class TableReplay:
    """Parses stored events of one flow again. `on_step` gets a line about each step. Raises `Misconfigured`.

    `parallel`: largest number of tasks that parse at once.
    """

    def __init__(
        self,
        spark: SparkSession,
        settings: CloudSettings,
        plan: Plan,
        on_step: Callable[[str], None],
        parallel: int | None = None,
    ) -> None:
        tables = tables_in(settings.flow.tables, storage_of(settings))
        for folder in (tables.events, tables.readings):
            if not is_table(spark, folder.path):
                raise Misconfigured(f"[flow] tables: there is no table in {folder.path}: has `fogline flow run` run?")
        self._spark = spark
        self._raw = tables.raw
        self._settings = settings
        self._plan = plan
        self._parallel = parallel or spark.sparkContext.defaultParallelism
        self._on_step = on_step
        self._events = DeltaLog("events", tables.events)
        self._readings = DeltaLog("readings", tables.readings)
        events = self._events.snapshot()
        self._seen = {"events": events.version(), "readings": self._readings.version()}
        self._files = pa.table(events.get_add_actions(flatten=True))
        self._rows = spark.read.format("delta").option("versionAsOf", self._seen["events"]).load(tables.events.path)
        self._folders = ReplayFolders(tables.events, tables.readings)
        self._staging = f"_replay/{uuid4()}/"  # Delta ignores names that begin with `_`

    def run(self, selection: Selection, *, publish: bool, dry_run: bool = False, into: str | None = None) -> Replayed:
        """Replay the selected rows whose record is in table `raw`, or can be made from what the row keeps.

        `publish`: send the canonical records of events that are ok now. `dry_run`: only compare. `into`: write the new rows to
        new tables in this folder, and replace and send nothing.
        """
        began = monotonic()
        try:
            result = self._run(selection, publish=publish, dry_run=dry_run, into=into)
            return msgspec.structs.replace(result, seconds=monotonic() - began)
        finally:
            for log in (self._events, self._readings):
                delete_below(log.folder, self._staging)

    def _run(self, selection: Selection, *, publish: bool, dry_run: bool, into: str | None) -> Replayed:
        staged = self._staged(selection, None if dry_run else self._staging if into else "")
        outcomes = {f"{each.was} -> {each.now}": each.events for each in staged.outcomes}
        result = Replayed(staged.rows, sum(outcomes.values()), outcomes, staged.differences)
        self._on_step(f"{result.selected} events were parsed again, {result.changed} are different now")
        if result.changed and not dry_run:
            landing = Landing(
                spark=self._spark,
                events=self._events,
                readings=self._readings,
                before=self._rows,
                folders=self._folders,
                staged=staged,
                predicate=micro_batches(self._settings.flow.name, staged.touched).predicate,
                stage=self._replies,
            )
            if into is None:
                self._land(landing, publish=publish)
            else:
                self._write_beside(landing, into)
        return result

    def _stored(self, selection: Selection, raw: TableFolder | None) -> StoredRows:
        flow = self._settings.flow.name
        return StoredRows(
            events=self._folders.events,
            raw=raw,
            selection=selection,
            flow=flow,
            tenant=self._settings.tenant,
            finished={run: self._readings.newest(MicroBatch(flow, run, 0)) for run in self._runs(selection)},
            find_missing=selection.days is not None and EventOutcome.OK in selection.outcomes,
        )

    def _runs(self, selection: Selection) -> set[str]:
        """Return the runs of the flow's rows, and perhaps others, from the statistics of the table's files if they suffice."""
        if {"min.run", "max.run"} <= {*self._files.column_names}:
            least, greatest = (self._files.column(name).to_pylist() for name in ("min.run", "max.run"))
            if None not in least and least == greatest:
                return {*least}
        rows = self._rows.where(self._of_flow)
        of_days = rows if selection.days is None else rows.where(F.col("day").between(*selection.days))
        return {row["run"] for row in of_days.select("run").distinct().collect()}

    @property
    def _of_flow(self) -> Column:
        return (F.col("flow") == self._settings.flow.name) & (F.col("tenant") == self._settings.tenant)

    def _open_raw(self, selection: Selection) -> pa.Table | None:
        """Return the files of table `raw`. Raises `Misconfigured` without them if the bodies of parsed events are needed."""
        folder = self._raw
        if is_table(self._spark, folder.path):
            table = DeltaTable(folder.uri, storage_options=folder.storage)
            if found := reader_problems(state_of(table, folder.path)):
                raise Misconfigured(found[0])
            return pa.table(table.get_add_actions(flatten=True))
        if EventOutcome.OK in selection.outcomes:
            raise Misconfigured(
                f"there is no table {folder.path}, and events that were parsed keep no body: [flow] raw_days lets the flow "
                "keep the records from now on"
            )
        return None

    def _staged(self, selection: Selection, below: str | None) -> StagedReplay:
        """Parse records once, and write what is different now: a parser may answer differently another time."""
        raw = self._open_raw(selection)
        raw_files = [] if raw is None else span_files(raw, selection.days)
        every = windows(span_files(self._files, selection.days), raw_files)
        stored = self._stored(selection, None if raw is None else self._raw)
        staged = [self._read_windows(every, partial(_reparse, self._plan, stored, self._folders, below))]
        if raw is not None and selection.days is not None and stored.find_missing:
            to_the_end = all(day <= selection.days[1] for day in raw.column("partition.day").to_pylist())
            lowest = lowest_offsets(self._settings)
            if may_miss(staged[0].coverage, to_the_end=to_the_end, lowest=lowest):
                staged += self._staged_missing(selection.days, selection.parser, below, lowest)
        return joined(staged)

    def _staged_missing(
        self, days: tuple[date, date], parser: str | None, below: str | None, lowest: LowestOffsets
    ) -> list[StagedReplay]:
        """Parse the records of table `raw` that have no row, if there are any."""
        mine = self._rows.where(self._of_flow)
        raw = self._spark.read.format("delta").load(self._raw.path).where(self._of_flow)
        missing = missing_records(raw, mine, days, lowest)
        read = self._replies(missing, partial(_parse, self._plan, self._settings.flow.name, self._folders, self._staging))
        if not read.events:
            return []
        found = self._read(read)
        came = as_changed(found if parser is None else found.where(F.col("parser") == parser), mine)
        return [self._replies(came, partial(stage_changed, self._folders, below, []))]

    def _read_windows(self, every: list[Window], work: Callable[[list[Window]], Iterator[pa.RecordBatch]]) -> StagedReplay:
        """Let workers `work` on windows."""
        if not every:
            return StagedReplay()
        numbers = self._spark.range(0, len(every), 1, min(len(every), self._parallel))
        return self._replies(numbers, partial(_of_numbers, work, every))

    def _replies(self, rows: DataFrame, work: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]) -> StagedReplay:
        replies = rows.coalesce(self._parallel).mapInArrow(work, REPLY).collect()
        return joined([msgspec.json.decode(each["reply"], type=StagedReplay) for each in replies])

    def _read(self, staged: StagedReplay) -> DataFrame:
        return self._spark.read.schema(ROWS).parquet(*(f"{self._events.folder.path}/{each.path}" for each in staged.events))

    def _land(self, landing: Landing, *, publish: bool) -> None:
        added = landing.only_added_readings()
        self._commit(self._readings, landing.changed_readings if added is None else lambda: ([], added))
        self._on_step(f"{'replaced' if added is None else 'added'} the rows of readings")
        if publish:
            send = partial(_send, self._settings.kafka, self._settings.tenant, self._settings.flow.canonical)
            mended = self._read(landing.staged).where(F.col("outcome") == EventOutcome.OK)
            mended.mapInArrow(send, "sent BIGINT").collect()
        self._commit(self._events, landing.changed_events)
        self._on_step("replaced the rows of events")

    def _write_beside(self, landing: Landing, into: str) -> None:
        for name, rows in (("readings", landing.new_readings), ("events", landing.new_events)):
            by_day = rows.withColumn("day", F.to_date("ingested"))
            by_day.write.format("delta").partitionBy("day").save(f"{into.rstrip('/')}/{name}")
        self._on_step(f"wrote the new rows to {into}; the tables stay as they are")

    def _commit(self, log: DeltaLog, change: Callable[[], FileChange]) -> None:
        """Commit a change of files, which is determined anew if another commit has removed the same files meanwhile."""
        for left in reversed(range(TRIES)):
            if others := others_since(log.snapshot(), self._seen[log.table]):
                raise Misconfigured(
                    f"{log.folder.path}: another command has changed the table meanwhile ({', '.join(others)}): run it again"
                )
            removed, added = change()
            try:
                swap(self._spark, log, removed, added)
            except (PySparkException, Py4JJavaError) as error:
                if "DELTA_CONCURRENT" not in str(error) or not left:
                    raise
            else:
                return


def _of_numbers(
    work: Callable[[list[Window]], Iterator[pa.RecordBatch]], every: list[Window], numbers: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    return work([every[number] for each in numbers for number in each.column("id").to_pylist()])


def _reparse(
    plan: Plan, stored: StoredRows, folders: ReplayFolders, below: str | None, every: list[Window]
) -> Iterator[pa.RecordBatch]:
    rows, coverage = list[int](), list[Coverage]()
    batches = read_stored(stored, every, coverage)
    changed = reparse(with_children(plan), stored.selection.parser, counted(batches, rows))
    return stage_changed(folders, below, rows, changed, coverage)


def _parse(
    plan: Plan, flow: str, folders: ReplayFolders, below: str, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    rows = parse(with_children(plan), MicroBatch(flow, "", 0), batches, keep_bodies=True)  # which may be lost as the rows are
    return stage_rows(folders, below, rows)


def _send(
    kafka: dict[str, Scalar], tenant: str, canonical: CanonicalSettings, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    sent = 0
    for each in batches:
        rows = conformed(pa.Table.from_batches([each]), STORED)
        publish(kafka, canonical_records(rows, tenant, canonical))
        sent += rows.num_rows
    yield pa.RecordBatch.from_pydict({"sent": pa.array([sent], pa.int64())})
