"""One replay: rows are parsed again, compared, and replaced by one commit per table.

| step | action | after a kill, the same command |
|---|---|---|
| 1 | workers parse the selected rows again, and write those that are different now to a folder of its own | begins anew |
| 2 | the driver counts what is different | |
| 3 | one commit to `readings` adds rows, or replaces the micro-batches that these rows belong to | finds the rows there |
| 4 | after a redrive, workers send the canonical records of events that are ok now | sends them again |
| 5 | one commit to `events` replaces these micro-batches | finds the rows as they were, and repeats steps 1 to 5 |

`events` comes last, because it says what is left to do. Only micro-batches that the flow has finished are replaced, so the
flow goes on meanwhile.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial, reduce
from operator import or_
from time import monotonic
from uuid import uuid4

import msgspec
import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark uses

from fogline.errors import Misconfigured
from fogline_cloud.flows import schema
from fogline_cloud.flows.attempt import careful_again
from fogline_cloud.flows.batch import MicroBatch
from fogline_cloud.flows.delta_log import DeltaLog
from fogline_cloud.flows.derive import canonical_records, reading_rows
from fogline_cloud.flows.files import delete_below
from fogline_cloud.flows.parse import STORED, Plan, parse
from fogline_cloud.flows.publish import publish
from fogline_cloud.flows.replay.difference import Difference
from fogline_cloud.flows.replay.micro_batches import MicroBatches, micro_batches
from fogline_cloud.flows.replay.missing import POSITION, RUN, as_changed, missing_records
from fogline_cloud.flows.replay.reparse import CHANGED_DDL, DIFFERENCES, WAS, reparse
from fogline_cloud.flows.replay.selection import Selection
from fogline_cloud.flows.schema import EventOutcome, conformed
from fogline_cloud.flows.table_history import others_since
from fogline_cloud.flows.tables import is_table, tables_in
from fogline_cloud.settings import CloudSettings, Scalar

TRIES = 4
"""Number of tries of a commit, in all, while other commits remove the same files."""
_KEY = ("run", "batch", "topic", "partition", "offset")
_BODY_IS_KEPT = "(data IS NOT NULL OR size_bytes = 0) AND recordedtime IS NOT NULL"
"""Without `recordedtime` its headers could not be read, and are lost."""
_ROWS = schema.ddl(schema.in_file(schema.EVENTS))
_READINGS = schema.ddl(schema.in_file(schema.READINGS))


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
        tables = tables_in(settings.flow.tables, settings.flow.storage)
        for folder in (tables.events, tables.readings):
            if not is_table(spark, folder.path):
                raise Misconfigured(f"[flow] tables: there is no table in {folder.path}: has `fogline flow run` run?")
        self._spark = spark
        self._raw = tables.raw.path
        self._settings = settings
        self._plan = plan
        self._parallel = parallel or spark.sparkContext.defaultParallelism
        self._on_step = on_step
        self._events = DeltaLog("events", tables.events)
        self._readings = DeltaLog("readings", tables.readings)
        self._seen = self._events.version(), self._readings.version()
        self._rows = spark.read.format("delta").option("versionAsOf", self._seen[0]).load(tables.events.path)
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
            delete_below(self._events.folder, self._staging)

    def _run(self, selection: Selection, *, publish: bool, dry_run: bool, into: str | None) -> Replayed:
        rows = self._finished(selection.condition())
        selected, missing = rows.count(), self._missing(selection)
        self._on_step(f"{selected} events are parsed again")
        if not selected and missing is None:
            return Replayed(0, 0, {}, [])
        changed = self._stage(self._with_records(rows, selection), missing, selection.parser)
        result = self._compare(selected, changed)
        self._on_step(f"{result.changed} are different now")
        if result.changed and not dry_run:
            self._land(changed, into, publish=publish)
        return result

    def _finished(self, condition: Column) -> DataFrame:
        """Return the selected rows of micro-batches that the flow has finished."""
        flow = self._settings.flow.name
        mine = self._rows.where(condition & (F.col("flow") == flow) & (F.col("tenant") == self._settings.tenant))
        runs = [row["run"] for row in mine.select("run").distinct().collect()]
        newest = {run: self._readings.newest(MicroBatch(flow, run, 0)) for run in runs}
        done = ((F.col("run") == run) & (F.col("batch") <= number) for run, number in newest.items())
        return mine.where(reduce(or_, done, F.col("run").startswith(RUN)))

    def _with_records(self, rows: DataFrame, selection: Selection) -> DataFrame:
        """Return the rows whose record is known. Those that are in table `raw` get columns `value` and `headers`."""
        if not is_table(self._spark, self._raw):
            if EventOutcome.OK in selection.outcomes:
                raise Misconfigured(
                    f"there is no table {self._raw}, and events that were parsed keep no body: [flow] raw_days lets the flow "
                    "keep the records from now on"
                )
            return rows.where(_BODY_IS_KEPT)
        days = [row["day"] for row in rows.select("day").distinct().collect()]
        raw = self._spark.read.format("delta").load(self._raw).where(F.col("day").isin(days))
        records = raw.select(*POSITION, "value", "headers").dropDuplicates(POSITION)
        return rows.join(records, POSITION, "left").where(f"headers IS NOT NULL OR ({_BODY_IS_KEPT})")

    def _missing(self, selection: Selection) -> DataFrame | None:
        if selection.days is None or EventOutcome.OK not in selection.outcomes:
            return None
        mine = (F.col("flow") == self._settings.flow.name) & (F.col("tenant") == self._settings.tenant)
        raw = self._spark.read.format("delta").load(self._raw)
        return missing_records(raw.where(mine), self._rows.where(mine), selection.days)

    def _stage(self, chosen: DataFrame, missing: DataFrame | None, parser: str | None) -> DataFrame:
        """Parse records once and keep the result: a parser may answer differently another time."""
        changed = self._parsed(chosen, partial(_reparse, self._plan, parser), f"{_ROWS}, {CHANGED_DDL}", "changed")
        if missing is None:
            return changed
        rows = self._parsed(missing, partial(_parse, self._plan, MicroBatch(self._settings.flow.name, "", 0)), _ROWS, "missing")
        mine = rows if parser is None else rows.where(F.col("parser") == parser)
        return changed.unionByName(as_changed(mine, self._rows.where(F.col("flow") == self._settings.flow.name)))

    def _parsed(
        self, records: DataFrame, work: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]], columns: str, name: str
    ) -> DataFrame:
        path = f"{self._events.folder.path}/{self._staging}{name}"
        records.coalesce(self._parallel).mapInArrow(work, columns).write.parquet(path)
        return self._spark.read.schema(columns).parquet(path)

    @staticmethod
    def _compare(selected: int, changed: DataFrame) -> Replayed:
        outcomes = changed.groupBy(WAS, "outcome").count().orderBy(WAS, "outcome").collect()
        each = changed.select("parser", "type", F.explode(DIFFERENCES).alias("one"))
        counts = each.groupBy("parser", "type", "one.metric", "one.change").count()
        return Replayed(
            selected,
            sum(row["count"] for row in outcomes),
            {f"{row[WAS]} -> {row['outcome']}": row["count"] for row in outcomes},
            [
                Difference(row["parser"] or "", row["type"] or "", row["metric"], row["change"], row["count"])
                for row in counts.orderBy("parser", "type", "metric", "change").collect()
            ],
        )

    def _land(self, changed: DataFrame, into: str | None, *, publish: bool) -> None:
        touched = changed.select(F.to_date("ingested").alias("day"), "run", "batch").distinct().collect()
        where = micro_batches(self._settings.flow.name, [tuple(row) for row in touched])
        columns = schema.names(schema.in_file(schema.EVENTS))
        kept = self._rows.where(where.predicate).join(changed.select(*_KEY), list(_KEY), "left_anti")
        rows = kept.select(columns).unionByName(changed.select(columns))
        readings = rows.mapInArrow(_reading_batches, _READINGS)
        if into is not None:
            for name, frame in (("readings", readings), ("events", rows)):
                _by_day(frame).write.format("delta").partitionBy("day").save(f"{into.rstrip('/')}/{name}")
            self._on_step(f"wrote the new rows to {into}; the tables stay as they are")
            return
        self._land_readings(readings, where, only_new=changed.where(F.col(WAS) == EventOutcome.OK).isEmpty())
        if publish:
            send = partial(_send, self._settings.kafka, self._settings.tenant)
            changed.where(F.col("outcome") == EventOutcome.OK).select(columns).mapInArrow(send, "sent BIGINT").collect()
        self._commit(self._events, self._seen[0], rows, where)
        self._on_step("replaced the rows of events")

    def _land_readings(self, wanted: DataFrame, where: MicroBatches, *, only_new: bool) -> None:
        """Add rows if none has to go, because streaming readers see only what is added. Else replace all of `where`.

        `only_new`: no event had readings, unless a replay was killed after it had added them.
        """
        found = self._spark.read.format("delta").option("versionAsOf", self._seen[1]).load(self._readings.folder.path)
        present = found.where(where.predicate).select(wanted.columns)
        if only_new and present.exceptAll(wanted).isEmpty():
            self._commit(self._readings, self._seen[1], wanted.exceptAll(present), None)
            self._on_step("added the rows of readings")
        else:
            self._commit(self._readings, self._seen[1], wanted, where)
            self._on_step("replaced the rows of readings")

    def _commit(self, log: DeltaLog, seen: int, rows: DataFrame, where: MicroBatches | None) -> None:
        """Replace the rows `where`, or only add rows."""
        for left in reversed(range(TRIES)):
            if others := others_since(log.snapshot(), seen):
                raise Misconfigured(
                    f"{log.folder.path}: another command has changed the table meanwhile ({', '.join(others)}): run it again"
                )
            writer = _by_day(rows).write.format("delta")
            if where is None:
                writer = writer.mode("append")
            else:
                writer = writer.mode("overwrite").option("replaceWhere", where.predicate)
            try:
                writer.save(log.folder.path)
            except (PySparkException, Py4JJavaError) as error:
                if "DELTA_CONCURRENT" not in str(error) or not left:
                    raise
            else:
                return


def _by_day(rows: DataFrame) -> DataFrame:
    return rows.withColumn("day", F.to_date("ingested"))


def _reparse(plan: Plan, parser: str | None, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return reparse(careful_again(plan), parser, batches)


def _parse(plan: Plan, batch: MicroBatch, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return parse(careful_again(plan), batch, batches)


def _reading_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for each in batches:
        yield from reading_rows(conformed(pa.Table.from_batches([each]), STORED)).to_batches()


def _send(kafka: dict[str, Scalar], tenant: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    sent = 0
    for each in batches:
        rows = conformed(pa.Table.from_batches([each]), STORED)
        publish(kafka, canonical_records(reading_rows(rows), tenant))
        sent += rows.num_rows
    yield pa.RecordBatch.from_pydict({"sent": pa.array([sent], pa.int64())})
