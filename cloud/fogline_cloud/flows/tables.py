"""The Delta tables in Spark: creation, and the offsets that they hold."""

from collections.abc import Mapping
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
from fogline_cloud.flows.batch import MicroBatch
from fogline_cloud.flows.delta_log import DeltaLog
from fogline_cloud.flows.files import TableFolder
from fogline_cloud.flows.owner import Owner
from fogline_cloud.flows.schema import Column
from fogline_cloud.flows.tasks import MEASURED
from fogline_cloud.flows.topic_ids import topic_application

Offsets = dict[str, dict[int, int]]
"""Topic to partition to offset."""


class Tables(msgspec.Struct, frozen=True):
    """The folders of the tables."""

    events: TableFolder
    readings: TableFolder
    raw: TableFolder


def tables_in(folder: str, storage: dict[str, str]) -> Tables:
    """Return the tables in a folder: a path, or a URL that Spark and delta-rs both know."""
    base = folder.rstrip("/")
    return Tables(*(TableFolder(f"{base}/{name}", storage) for name in Tables.__struct_fields__))


def make_tables(spark: SparkSession, tables: Tables) -> bool:
    """Create missing parts of `events` and `readings`. Returns True if `events` existed. Raises as `make_table` does."""
    existed = make_table(spark, tables.events, schema.EVENTS, MEASURED["events"])
    make_table(spark, tables.readings, schema.READINGS, MEASURED["readings"])
    return existed


def make_table(spark: SparkSession, folder: TableFolder, columns: tuple[Column, ...], measured: tuple[str, ...]) -> bool:
    """Create the table, or its missing columns. Returns True if it existed. Raises `Misconfigured` for other columns."""
    path = folder.path
    existed = is_table(spark, path)
    if not existed:
        _make(spark, path, columns, ",".join(measured))
    found = spark.read.format("delta").load(path).columns
    if missing := [column for column in columns if column.name not in found]:
        _add(spark, path, missing, columns)
        found = spark.read.format("delta").load(path).columns
    if not set(found) >= set(schema.names(columns)):  # a user's own columns are null in the flow's files
        raise Misconfigured(f"{path}: its columns are not those of this version: {', '.join(found)}; use another folder")
    return existed


def require_shared(spark: SparkSession, folder: TableFolder, master: str) -> None:
    """Raise `Misconfigured` unless the driver sees the files that executors write into the folder."""
    names = [f"_probe-{uuid4()}" for _ in range(spark.sparkContext.defaultParallelism)]
    spark.sparkContext.parallelize(names, len(names)).mapPartitions(partial(files.write_probes, folder)).collect()
    if files.missing_probes(folder, names):
        raise Misconfigured(
            f"[flow] tables = {folder.path.removesuffix('/events')}: the driver does not see the files that Spark's executors "
            f"write there: with master = {master}, use a folder that all machines share, or a URL"
        )


def is_table(spark: SparkSession, path: str) -> bool:
    """Return True if the folder holds a table with a commit."""
    # The folder alone does not tell: a first commit that was killed leaves a `_delta_log` without one.
    return bool(spark._jvm.io.delta.tables.DeltaTable.isDeltaTable(spark._jsparkSession, path))  # noqa: SLF001 - PySpark's API reads the folder


def _make(spark: SparkSession, path: str, columns: tuple[Column, ...], stats: str) -> None:
    quoted = path.replace("`", "``")
    try:
        spark.sql(
            f"CREATE TABLE IF NOT EXISTS delta.`{quoted}` ({schema.ddl_with_meaning(columns)}) USING delta "
            f"PARTITIONED BY (day) TBLPROPERTIES ('delta.dataSkippingStatsColumns' = '{stats}', "
            # Each checkpoint of the log names every file that was replaced within this time.
            "'delta.deletedFileRetentionDuration' = 'interval 1 days')"
        )
    except (PySparkException, Py4JJavaError) as error:
        raise Misconfigured(f"{path}: the table cannot be created: {str(error).partition(chr(10))[0]}") from error


def _add(spark: SparkSession, path: str, missing: list[Column], columns: tuple[Column, ...]) -> None:
    """Add columns that an earlier version did not have. Existing rows have nulls there."""
    quoted = path.replace("`", "``")
    before = {name: former for former, name in pairwise(schema.names(columns))}
    for column in missing:
        try:
            spark.sql(
                f"ALTER TABLE delta.`{quoted}` ADD COLUMNS ({schema.ddl_with_meaning((column,))} AFTER `{before[column.name]}`)"
            )
        except (KeyError, PySparkException, Py4JJavaError):
            return  # this is some other table: the caller reports its columns


def read_raw_offsets(spark: SparkSession, owner: Owner, folder: TableFolder, topic_ids: Mapping[str, str]) -> Offsets:
    """Return the offset after the last row of each partition in `raw`. Rows of former topics of these names do not count.

    Reads the whole column of offsets, so only for a new checkpoint. `topic_ids`: id by name, as Kafka has them now.
    """
    flow = (F.col("tenant") == owner.tenant) & (F.col("flow") == owner.flow)
    rows = spark.read.format("delta").load(folder.path).where(flow)
    offsets: Offsets = {}
    for row in rows.groupBy("topic", "topic_id", "partition").agg((F.max("offset") + 1).alias("next")).collect():
        if row["topic_id"] in (None, topic_ids.get(row["topic"])):
            partitions = offsets.setdefault(row["topic"], {})
            partitions[row["partition"]] = max(row["next"], partitions.get(row["partition"], 0))
    return offsets


def read_progress(spark: SparkSession, owner: Owner, log: DeltaLog) -> tuple[Offsets, list[MicroBatch]]:
    """Return the offset after the last row of each partition in `events`, and the batches that may have been interrupted.

    Reads the whole column of offsets, so only for a new checkpoint. A topic created again counts from its epoch.
    """
    flow = (F.col("tenant") == owner.tenant) & (F.col("flow") == owner.flow)
    events = spark.read.format("delta").load(log.folder.path).where(flow)
    newest = {row["run"]: row["batch"] for row in events.groupBy("run").agg(F.max("batch").alias("batch")).collect()}
    epochs = {run: log.version_of(msgspec.structs.replace(owner, run=run).application_of_run) or 0 for run in newest}
    of_this_topic = F.lit(True)
    for topic in topics.raw_topics(owner.tenant):
        since = log.version_of(topic_application(owner.name, topic)) or 0
        former = [run for run, epoch in epochs.items() if epoch < since]
        of_this_topic &= (F.col("topic") != topic) | ~F.col("run").isin(former)
    following = (F.max(F.when(of_this_topic, F.col("offset"))) + 1).alias("next")
    last_batch = F.max_by(F.struct("run", "batch"), F.struct(of_this_topic, "offset")).alias("last")
    offsets: Offsets = {}
    unfinished: set[MicroBatch] = set()
    for row in events.groupBy("topic", "partition").agg(following, last_batch).collect():
        if row["next"] is not None:
            offsets.setdefault(row["topic"], {})[row["partition"]] = row["next"]
        run, number = row["last"]
        if newest[run] == number:
            unfinished.add(MicroBatch(owner.flow, run, number))
    return offsets, sorted(unfinished, key=lambda batch: (batch.run, batch.number))
