"""The two Delta tables as places: made once, read back by batch, asked how far they are."""

from dataclasses import dataclass
from datetime import date

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark uses

from fogline.errors import Misconfigured
from fogline_cloud.flows import schema
from fogline_cloud.flows.schema import Column

Offsets = dict[str, dict[int, int]]
"""Topic to partition to offset."""


@dataclass(frozen=True, slots=True)
class Tables:
    """Where the tables are: paths or URLs of Spark."""

    events: str
    readings: str


def tables_in(folder: str) -> Tables:
    """The tables below one folder."""
    base = folder.rstrip("/")
    return Tables(f"{base}/events", f"{base}/readings")


_STATS = {
    "events": "run,batch,ingested,stream,sequence",
    "readings": "run,batch,time,device",
}
"""Columns that files keep statistics of: what they are found by."""


def make_tables(spark: SparkSession, tables: Tables) -> bool:
    """Make what is not there yet. Returns whether `events` was there.

    Raises `Misconfigured` if one is there with other columns, or cannot be made.
    """
    there = is_table(spark, tables.events)
    for name, path, columns in (("events", tables.events, schema.EVENTS), ("readings", tables.readings, schema.READINGS)):
        if not is_table(spark, path):
            _make(spark, path, columns, _STATS[name])
        found = spark.read.format("delta").load(path).columns
        if found != schema.names(columns):
            raise Misconfigured(f"{path}: its columns are not those of this version: {', '.join(found)}; use another folder")
    return there


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


@dataclass(frozen=True, slots=True)
class Batch:
    """One micro-batch of one checkpoint (`run`) of one flow."""

    flow: str
    run: str
    number: int

    def application(self, what: str) -> str:
        """The Delta transaction application of this run's writes to `what`; the batch number is the version."""
        return f"{self.flow}/{self.run}/{what}"


def rows_of(spark: SparkSession, path: str, batch: Batch) -> DataFrame:
    """What one micro-batch wrote, found by the files' statistics."""
    mine = (F.col("flow") == batch.flow) & (F.col("run") == batch.run) & (F.col("batch") == batch.number)
    return spark.read.format("delta").load(path).where(mine)


def compact(spark: SparkSession, path: str, days: tuple[date, date]) -> None:
    """Pack the small files of these days. Readers are not disturbed, and the rows stay as they are."""
    place = path.replace("`", "``")
    spark.sql(f"OPTIMIZE delta.`{place}` WHERE day BETWEEN DATE '{days[0]}' AND DATE '{days[1]}'")


def newest_batch(spark: SparkSession, tables: Tables, flow: str, run: str) -> int:
    """The highest batch that this run of the flow has in `events`, -1 for none."""
    mine = (F.col("flow") == flow) & (F.col("run") == run)
    newest = spark.read.format("delta").load(tables.events).where(mine).agg(F.max("batch")).first()
    return -1 if newest is None or newest[0] is None else int(newest[0])


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a flow is by its table alone.

    `offsets`: after the highest one of every partition that it has rows of. `last`: the batches that may have been cut
    short after `events` was written.
    """

    offsets: Offsets
    last: list[Batch]


def standing(spark: SparkSession, tables: Tables, flow: str) -> Standing:
    """Read the whole column of offsets: only for a flow whose checkpoint is new."""
    events = spark.read.format("delta").load(tables.events).where(F.col("flow") == flow)
    newest = {row["run"]: row["batch"] for row in events.groupBy("run").agg(F.max("batch").alias("batch")).collect()}
    following = (F.max("offset") + 1).alias("next")
    owner = F.max_by(F.struct("run", "batch"), "offset").alias("owner")
    offsets: Offsets = {}
    last: set[Batch] = set()
    for row in events.groupBy("topic", "partition").agg(following, owner).collect():
        offsets.setdefault(row["topic"], {})[row["partition"]] = row["next"]
        run, number = row["owner"]
        if newest[run] == number:
            last.add(Batch(flow, run, number))
    return Standing(offsets, sorted(last, key=lambda batch: (batch.run, batch.number)))
