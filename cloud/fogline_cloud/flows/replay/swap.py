"""One commit that removes files from a table and adds others.

Spark's transaction makes it: delta-rs 1.6 can remove files too, but does not notice that a concurrent compaction has moved
their rows to another file, so these rows would come back.
"""

import json
import time
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark uses

from fogline_cloud.flows.tables.batch import File
from fogline_cloud.flows.tables.delta_log import DeltaLog
from fogline_cloud.flows.tables.files import require_files

_PACKAGE = "org.apache.spark.sql.delta"


class HoldingFile(msgspec.Struct, frozen=True):
    """A committed file. `rows`: `None` if its statistics do not say it."""

    path: str  # relative to the folder
    size: int  # bytes
    day: str
    rows: int | None


class Holding(msgspec.Struct, frozen=True):
    """The files at one version of a table that hold some rows. `selected`: the number of these rows."""

    version: int
    files: list[HoldingFile]
    selected: int

    @property
    def others(self) -> bool:
        """True if the files may hold other rows too."""
        counts = [each.rows for each in self.files]
        return None in counts or sum(each for each in counts if each is not None) != self.selected


def holding(spark: SparkSession, log: DeltaLog, predicate: str) -> Holding:
    """Return the files of the newest version with rows that the predicate selects."""
    table = log.snapshot()
    version = table.version()
    known = pa.table(table.get_add_actions(flatten=True)).select(["path", "size_bytes", "partition.day", "num_records"])
    rows = at_version(spark, log, version).where(predicate)
    counts = rows.groupBy(F.col("_metadata.file_name").alias("name")).count().collect()
    found = {row["name"]: row["count"] for row in counts}
    files = [
        HoldingFile(path, size, str(day), count)
        for path, size, day, count in zip(*(column.to_pylist() for column in known.columns), strict=True)
        if path.rpartition("/")[2] in found
    ]
    return Holding(version, files, sum(found.values()))


def at_version(spark: SparkSession, log: DeltaLog, version: int) -> DataFrame:
    """Return a version of a table."""
    return spark.read.format("delta").option("versionAsOf", version).load(log.folder.path)


def rows_of(spark: SparkSession, log: DeltaLog, found: Holding) -> DataFrame:
    """Return all rows of these files, with the columns of the table."""
    schema = at_version(spark, log, found.version).drop("day").schema
    paths = [f"{log.folder.path}/{each.path}" for each in found.files]
    return spark.read.schema(schema).parquet(*paths).withColumn("day", F.to_date("ingested"))


def swap(spark: SparkSession, log: DeltaLog, removed: Iterable[HoldingFile], added: Sequence[File]) -> None:
    """Commit. Raises `Py4JJavaError` with DELTA_CONCURRENT if another commit has removed one of the files.

    Raises `FilesGone`, and removes nothing, if a file to add is missing.
    """
    require_files(log.folder, added)
    now_ms = int(time.time() * 1000)
    actions = [
        *({"remove": _remove(each, now_ms)} for each in removed),
        *({"add": _add(each)} for each in added),
    ]
    jvm: Any = spark._jvm  # noqa: SLF001 - PySpark has no API for a transaction
    package = getattr(jvm, _PACKAGE)
    transaction = package.DeltaLog.forTable(spark._jsparkSession, log.folder.path).startTransaction()  # noqa: SLF001
    parsed = [package.actions.Action.fromJson(json.dumps(each)) for each in actions]
    operation = getattr(getattr(package, "DeltaOperations$ManualUpdate$"), "MODULE$")
    transaction.commit(jvm.PythonUtils.toSeq(parsed), operation)


def _remove(file: HoldingFile, now_ms: int) -> dict[str, Any]:
    return {
        "path": file.path,
        "deletionTimestamp": now_ms,
        "dataChange": True,
        "extendedFileMetadata": True,
        "partitionValues": {"day": file.day},
        "size": file.size,
    }


def _add(file: File) -> dict[str, Any]:
    return {
        "path": file.path,
        "partitionValues": {"day": file.day},
        "size": file.size,
        "modificationTime": file.modified_ms,
        "dataChange": True,
        "stats": file.stats,
    }
