"""The two Delta tables as Spark has them: made once, packed, asked how far they are."""

from dataclasses import dataclass
from datetime import date
from functools import partial
from itertools import pairwise
from uuid import uuid4

import msgspec
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark uses

from fogline.errors import Misconfigured
from fogline_cloud import topics
from fogline_cloud.flows import files, schema
from fogline_cloud.flows.batch import Batch
from fogline_cloud.flows.delta_log import DeltaLog
from fogline_cloud.flows.files import Folder
from fogline_cloud.flows.owner import Owner
from fogline_cloud.flows.schema import Column
from fogline_cloud.flows.tasks import MEASURED
from fogline_cloud.flows.topic_ids import application

Offsets = dict[str, dict[int, int]]
"""Topic to partition to offset."""


@dataclass(frozen=True, slots=True)
class Tables:
    """Where the tables are."""

    events: Folder
    readings: Folder


def tables_in(folder: str, storage: dict[str, str]) -> Tables:
    """The tables below one folder: a path, or a URL that Spark and delta-rs both know."""
    base = folder.rstrip("/")
    return Tables(Folder(f"{base}/events", storage), Folder(f"{base}/readings", storage))


def make_tables(spark: SparkSession, tables: Tables) -> bool:
    """Make what is not there yet, tables and columns. Returns whether `events` was there.

    Raises `Misconfigured` if one is there with other columns, or cannot be made.
    """
    there = is_table(spark, tables.events.path)
    for name, folder, columns in (("events", tables.events, schema.EVENTS), ("readings", tables.readings, schema.READINGS)):
        path = folder.path
        if not is_table(spark, path):
            _make(spark, path, columns, ",".join(MEASURED[name]))
        found = spark.read.format("delta").load(path).columns
        if missing := [column for column in columns if column.name not in found]:
            _add(spark, path, missing, columns)
            found = spark.read.format("delta").load(path).columns
        if found != schema.names(columns):
            raise Misconfigured(f"{path}: its columns are not those of this version: {', '.join(found)}; use another folder")
    return there


def require_shared(spark: SparkSession, folder: Folder, master: str) -> None:
    """Raise `Misconfigured` unless the driver sees what executors write into the folder."""
    names = [f"_probe-{uuid4()}" for _ in range(spark.sparkContext.defaultParallelism)]
    spark.sparkContext.parallelize(names, len(names)).mapPartitions(partial(files.write_probes, folder)).collect()
    if files.missing_probes(folder, names):
        raise Misconfigured(
            f"[flow] tables = {folder.path.removesuffix('/events')}: the driver does not see the files that Spark's executors "
            f"write there: with master = {master}, use a folder that all machines share, or a URL"
        )


def is_table(spark: SparkSession, path: str) -> bool:
    """Whether there is a commit: a first one that was killed leaves a `_delta_log` without any."""
    return bool(spark._jvm.io.delta.tables.DeltaTable.isDeltaTable(spark._jsparkSession, path))  # noqa: SLF001 - only the JVM knows


def _make(spark: SparkSession, path: str, columns: tuple[Column, ...], stats: str) -> None:
    place = path.replace("`", "``")
    try:
        spark.sql(
            f"CREATE TABLE IF NOT EXISTS delta.`{place}` ({schema.ddl_with_meaning(columns)}) USING delta "
            f"PARTITIONED BY (day) TBLPROPERTIES ('delta.dataSkippingStatsColumns' = '{stats}')"
        )
    except (PySparkException, Py4JJavaError) as error:
        raise Misconfigured(f"{path}: the table cannot be made: {str(error).partition(chr(10))[0]}") from error


def _add(spark: SparkSession, path: str, missing: list[Column], columns: tuple[Column, ...]) -> None:
    """Add columns that an earlier version did not have: its rows have nulls there."""
    place = path.replace("`", "``")
    before = {name: former for former, name in pairwise(schema.names(columns))}
    for column in missing:
        try:
            spark.sql(
                f"ALTER TABLE delta.`{place}` ADD COLUMNS ({schema.ddl_with_meaning((column,))} AFTER `{before[column.name]}`)"
            )
        except (KeyError, PySparkException, Py4JJavaError):
            return  # the columns are those of something else: the caller says so


def compact(spark: SparkSession, path: str, days: tuple[date, date]) -> None:
    """Pack the small files of these days. Readers are not disturbed, and the rows stay as they are."""
    place = path.replace("`", "``")
    spark.sql(f"OPTIMIZE delta.`{place}` WHERE day BETWEEN DATE '{days[0]}' AND DATE '{days[1]}'")


def compact_all(spark: SparkSession, tables: Tables, days: tuple[date, date]) -> None:
    """`compact` for both tables."""
    for folder in (tables.events, tables.readings):
        compact(spark, folder.path, days)


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a flow is by its table alone.

    `offsets`: after the highest one of every partition that it has rows of. `last`: the batches that may have been cut
    short after `events` was written.
    """

    offsets: Offsets
    last: list[Batch]


def standing(spark: SparkSession, tables: Tables, owner: Owner, log: DeltaLog) -> Standing:
    """Read the whole column of offsets: only for a flow whose checkpoint is new. `log`: that of `events`.

    Offsets of a topic that was made again count from the epoch in which that was accepted.
    """
    flow = (F.col("tenant") == owner.tenant) & (F.col("flow") == owner.flow)
    events = spark.read.format("delta").load(tables.events.path).where(flow)
    newest = {row["run"]: row["batch"] for row in events.groupBy("run").agg(F.max("batch").alias("batch")).collect()}
    epochs = {run: log.version_of(msgspec.structs.replace(owner, run=run).application_of_run) or 0 for run in newest}
    of_this_topic = F.lit(True)
    for topic in topics.raw_topics(owner.tenant):
        since = log.version_of(application(owner.name, topic)) or 0
        former = [run for run, epoch in epochs.items() if epoch < since]
        of_this_topic &= (F.col("topic") != topic) | ~F.col("run").isin(former)
    following = (F.max(F.when(of_this_topic, F.col("offset"))) + 1).alias("next")
    last_batch = F.max_by(F.struct("run", "batch"), F.struct(of_this_topic, "offset")).alias("last")
    offsets: Offsets = {}
    last: set[Batch] = set()
    for row in events.groupBy("topic", "partition").agg(following, last_batch).collect():
        if row["next"] is not None:
            offsets.setdefault(row["topic"], {})[row["partition"]] = row["next"]
        run, number = row["last"]
        if newest[run] == number:
            last.add(Batch(owner.flow, run, number))
    return Standing(offsets, sorted(last, key=lambda batch: (batch.run, batch.number)))
