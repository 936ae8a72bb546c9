"""The tables and topics of a tenant as Spark DataFrames, for notebooks and jobs: batch, or streaming.

    from fogline_cloud.frames import readings, session

    spark = session("cloud.toml")
    readings(spark, "cloud.toml", streaming=True)

`kept_windows`: the query that keeps windows up to date
`reader_notes`: notes what streams have read of the tables
`windows`: aggregates by time that late events, replays and deletions reach
`windows_folder`: the folder of windows, with their definition and their owner
`windows_query`: what windows are, as queries

`readings`, `events`, `raw` and `fleet` are the Delta tables (docs/reference/columns.md). `metadata` is that of every event from
its topic, at least once. Each function takes the session, so that it works with a notebook's own.

Rows of events and readings have a column `event_time` for watermarks. The function of that name makes it with other bounds:
`readings(spark).withColumn("event_time", event_time(ahead=timedelta(hours=1)))`.
"""

from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark uses
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.utils import is_remote

from fogline.errors import Misconfigured
from fogline_cloud.fleet.buckets import AHEAD, BEHIND
from fogline_cloud.fleet.fleet_table import fleet_of
from fogline_cloud.flows.driver.session import start_session
from fogline_cloud.flows.driver.spark_kafka_options import spark_options
from fogline_cloud.flows.tables.files import TableFolder, Tables, tables_in
from fogline_cloud.flows.tables.schema import FLEET, arrow_schema, ddl
from fogline_cloud.flows.tables.table_log import TableLog
from fogline_cloud.flows.worker.derive import EVENT_METADATA
from fogline_cloud.frames.reader_notes import reader_notes
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.settings import CloudSettings, load
from fogline_cloud.store.options import storage_of

Config = CloudSettings | Path | str
"""The settings, or the path of their file (`cloud.toml`)."""


LOG = "fogline-session.log"
"""Spark's own log of a session, in the working folder. A flow has its own."""


def session(config: Config = "cloud.toml") -> SparkSession:
    """Start a Spark session with Fogline's settings, or return the running one. Raises `Misconfigured`."""
    return start_session(_settings(config), Path(LOG).absolute())


def event_time(ahead: timedelta = AHEAD, behind: timedelta = BEHIND) -> SparkColumn:
    """Return `time`, cut to between `behind` before and `ahead` after the time at which the gateway stored the event.

    A device whose clock says 2099 does not move a watermark on it. A gateway's clock cannot either, because it counts up to
    `ingested` only. Events that a gateway or a device kept for longer than the watermark's delay are late for Spark, as always.
    """
    anchor = F.least(F.coalesce("recordedtime", "ingested"), F.col("ingested"))
    latest, earliest = anchor + F.lit(ahead), anchor - F.lit(behind)
    return F.greatest(F.least(F.coalesce("time", "recordedtime", "ingested"), latest), earliest)


def readings(
    spark: SparkSession, config: Config = "cloud.toml", *, streaming: bool = False, changes: bool = False, **options: Any
) -> DataFrame:
    """Return table `readings`, one row for each value, with `event_time`.

    `changes`: a stream of all changes, with Delta's columns `_change_type`, `_commit_version` and `_commit_timestamp`: rows
    that a replay or a deletion removed come as `delete`. Without it, a stream has only the rows that the flow inserted.
    `options`: of Delta's streaming source. A stream notes what it has read (`fogline table readers`).
    """
    return _with_event_time(_table(spark, config, "readings", streaming=streaming, changes=changes, **options))


def events(
    spark: SparkSession, config: Config = "cloud.toml", *, streaming: bool = False, changes: bool = False, **options: Any
) -> DataFrame:
    """Return table `events`, one row for each record, with `event_time`. Options are those of `readings`."""
    return _with_event_time(_table(spark, config, "events", streaming=streaming, changes=changes, **options))


def raw(spark: SparkSession, config: Config = "cloud.toml", *, streaming: bool = False) -> DataFrame:
    """Return table `raw`, one row for each record as it was read from Kafka. With `raw_days = 0` there is none."""
    return _table(spark, config, "raw", streaming=streaming)


def fleet(spark: SparkSession, config: Config = "cloud.toml") -> DataFrame:
    """Return table `fleet`: the events of each device, counted by day, gateway and more (docs/fleet.md).

    Days of which `events` has changed since maintenance counted them are counted now.
    """
    settings = _settings(config)
    _folder(settings, "events")
    found = fleet_of(settings, datetime.now(UTC).date()).counted_since()
    columns = ddl(FLEET)
    days = [date.fromisoformat(day) for day in found.days]
    parts = zip(days, found.days.values(), strict=True)
    counted = [rows.append_column("day", pa.repeat(pa.scalar(day), len(rows))) for day, rows in parts]
    now = spark.createDataFrame(pa.concat_tables([arrow_schema(FLEET).empty_table(), *counted]), columns)
    if found.version is None:
        return now
    kept = spark.read.format("delta").option("versionAsOf", found.version).load(_tables(settings).fleet.path)
    return kept.where(~F.col("day").isin(days)).unionByName(now)


def metadata(spark: SparkSession, config: Config = "cloud.toml", *, streaming: bool = False) -> DataFrame:
    """Return the metadata of every event, without bodies, from their topic: at least once. `readings` is their number."""
    settings = _settings(config)
    topics.require([topics.fleet(settings.tenant)], KafkaClients(settings.kafka).topics())
    columns = ddl(EVENT_METADATA)
    options = {
        **spark_options(settings.kafka),
        "kafka.isolation.level": "read_committed",
        "subscribe": topics.fleet(settings.tenant),
        "startingOffsets": "earliest",
    }
    found = (spark.readStream if streaming else spark.read).format("kafka").options(**options).load()
    entries = F.from_json(F.col("value").cast("string"), f"ARRAY<STRUCT<{columns}, `readings` INT>>")
    return found.select(F.explode(entries).alias("event")).select("event.*").withColumn("event_time", event_time())


def version(config: Config = "cloud.toml", table: str = "readings") -> int:
    """Return the newest version of a table. Raises `Misconfigured` if it cannot be read."""
    return TableLog(table, _folder(_settings(config), table)).version()


def table_id(config: Config = "cloud.toml", table: str = "readings") -> str:
    """Return the id of a table: one that was made again has another. Raises `Misconfigured` if it cannot be read."""
    found: str = TableLog(table, _folder(_settings(config), table)).snapshot().metadata().id
    return found


def storage(config: Config = "cloud.toml") -> dict[str, str]:
    """Return delta-rs's options for folders beside the tables."""
    return storage_of(_settings(config))


def note_progress(spark: SparkSession, query: StreamingQuery) -> None:
    """Note now what a query over these tables has read. Else it is noted soon after each micro-batch, on another thread."""
    if query.lastProgress is not None:
        reader_notes(spark).note(query.lastProgress)


def _with_event_time(rows: DataFrame) -> DataFrame:
    return rows.withColumn("event_time", event_time())


def _tables(settings: CloudSettings) -> Tables:
    return tables_in(settings.flow.tables, storage_of(settings))


def _folder(settings: CloudSettings, table: str) -> TableFolder:
    """Return the folder of a table. Raises `Misconfigured` if the table is missing."""
    folder: TableFolder = getattr(_tables(settings), table)
    with suppress(DeltaError, OSError):  # Spark may know more kinds of folders than delta-rs
        if not DeltaTable.is_deltatable(folder.uri, folder.storage):
            off = ". With [flow] raw_days = 0 it makes no such table" if table == "raw" and not settings.flow.raw_days else ""
            raise Misconfigured(
                f"there is no table {table} in {folder.path} ([flow] tables in the settings): the flow makes it when it "
                f"starts for the first time (`fogline flow run`){off}"
            )
    return folder


def _settings(config: Config) -> CloudSettings:
    return config if isinstance(config, CloudSettings) else load(Path(config))


def _table(
    spark: SparkSession, config: Config, name: str, *, streaming: bool, changes: bool = False, **options: Any
) -> DataFrame:
    folder = _folder(_settings(config), name)
    if not streaming:
        if changes or options:
            raise Misconfigured(f"{name}: changes and options are those of a stream: give streaming=True")
        return spark.read.format("delta").load(folder.path)
    if not is_remote():  # a pipeline notes itself what it has read: its queries cannot add listeners
        reader_notes(spark).watch(folder)
    # Compaction changes no row, and old days may be deleted: neither is an event of the stream.
    form = {"readChangeFeed": "true"} if changes else {"skipChangeCommits": "true"}
    return spark.readStream.format("delta").options(**form, **options).load(folder.path)
