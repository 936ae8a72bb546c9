"""Creates the tables with Spark, and adds columns that they lack."""

from itertools import pairwise

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from fogline.errors import Misconfigured
from fogline_cloud.flows.tables import schema
from fogline_cloud.flows.tables.files import TableFolder, Tables
from fogline_cloud.flows.tables.schema import MEASURED, Column
from fogline_cloud.store.failure import failure_of, meaning_of


def make_tables(spark: SparkSession, tables: Tables) -> bool:
    """Create missing parts of `events` and `readings`. Returns True if `events` existed. Raises as `make_table` does."""
    existed = make_table(spark, tables.events, schema.EVENTS, MEASURED["events"], changes=True)
    make_table(spark, tables.readings, schema.READINGS, MEASURED["readings"], changes=True)
    return existed


def make_table(
    spark: SparkSession, folder: TableFolder, columns: tuple[Column, ...], measured: tuple[str, ...], *, changes: bool = False
) -> bool:
    """Create the table, or its missing columns. Returns True if it existed. Raises `Misconfigured` for other columns.

    `changes`: a new table has a change data feed (Delta protocol, "Change Data Files").
    """
    path = folder.path
    if set(_known_columns(folder)) >= set(schema.names(columns)):
        return True
    existed = is_table(spark, path)
    if not existed:
        _make(spark, path, columns, ",".join(measured), changes=changes)
    found = spark.read.format("delta").load(path).columns
    if missing := [column for column in columns if column.name not in found]:
        _add(spark, path, missing, columns)
        found = spark.read.format("delta").load(path).columns
    if not set(found) >= set(schema.names(columns)):  # a user's own columns are null in the flow's files
        raise Misconfigured(f"{path}: its columns are not those of this version: {', '.join(found)}; use another folder")
    return existed


def _known_columns(folder: TableFolder) -> list[str]:
    """Return the table's columns, none if delta-rs finds no table. Spark takes seconds for its first look at a table."""
    try:
        return [field.name for field in DeltaTable(folder.uri, storage_options=folder.storage).schema().fields]
    except (DeltaError, OSError):
        return []


def is_table(spark: SparkSession, path: str) -> bool:
    """Return True if the folder holds a table with a commit."""
    # The folder alone does not tell: a first commit that was killed leaves a `_delta_log` without one.
    return bool(spark._jvm.io.delta.tables.DeltaTable.isDeltaTable(spark._jsparkSession, path))  # noqa: SLF001 - PySpark's API reads the folder


def _make(spark: SparkSession, path: str, columns: tuple[Column, ...], stats: str, *, changes: bool) -> None:
    quoted = path.replace("`", "``")
    feed = ", 'delta.enableChangeDataFeed' = 'true'" if changes else ""
    try:
        spark.sql(
            f"CREATE TABLE IF NOT EXISTS delta.`{quoted}` ({schema.ddl_with_meaning(columns)}) USING delta "
            f"PARTITIONED BY (day) TBLPROPERTIES ('delta.dataSkippingStatsColumns' = '{stats}', "
            # Each checkpoint of the log names every file that was replaced within this time.
            f"'delta.deletedFileRetentionDuration' = 'interval 1 days'{feed})"
        )
    except (PySparkException, Py4JJavaError) as error:
        raise failure_of(error, f"{path}: the table cannot be created") from error


def _add(spark: SparkSession, path: str, missing: list[Column], columns: tuple[Column, ...]) -> None:
    """Add columns that an earlier version did not have. Existing rows have nulls there."""
    quoted = path.replace("`", "``")
    before = {name: former for former, name in pairwise(schema.names(columns))}
    for column in missing:
        try:
            spark.sql(
                f"ALTER TABLE delta.`{quoted}` ADD COLUMNS ({schema.ddl_with_meaning((column,))} AFTER `{before[column.name]}`)"
            )
        except (KeyError, PySparkException, Py4JJavaError) as error:
            if (at_store := meaning_of(str(error))) is not None:
                raise at_store from error
            return  # this is some other table: the caller reports its columns
