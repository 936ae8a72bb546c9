"""The checkpoint folder of a streaming query: its id, and its planned and finished batches."""

import json
import uuid
from typing import Any

from pyspark.sql import SparkSession

from fogline_cloud.flows.start.checkpoint_files import QueryCheckpoint


def open_checkpoint(spark: SparkSession, folder: str) -> QueryCheckpoint:
    """Read the checkpoint in a folder (a path or a URL). A new checkpoint gets its uuid here, and Spark uses it."""
    metadata = f"{folder}/metadata"
    system, path = _hadoop(spark, metadata)
    if not system.exists(path):
        return QueryCheckpoint(_write_metadata(system, path), -1, -1)
    return QueryCheckpoint(
        _read_metadata(spark, system, path), _newest(spark, f"{folder}/offsets"), _newest(spark, f"{folder}/commits")
    )


def delete_checkpoint(spark: SparkSession, folder: str) -> None:
    """Delete the checkpoint in a folder. `metadata` goes last, so that a kill leaves it under its old uuid."""
    for name in ("offsets", "commits", "sources", "state", "metadata"):
        system, path = _hadoop(spark, f"{folder}/{name}")
        system.delete(path, True)


def plan_again(spark: SparkSession, folder: str, batch: int) -> None:
    """Let the next query do a finished batch, the newest one, with the same offsets. After a kill, call it again."""
    for name in (f"offsets/{batch + 1}", f"commits/{batch}"):
        system, path = _hadoop(spark, f"{folder}/{name}")
        system.delete(path, False)


def _newest(spark: SparkSession, folder: str) -> int:
    system, path = _hadoop(spark, folder)
    names = [status.getPath().getName() for status in system.listStatus(path)] if system.exists(path) else []
    return max((int(name) for name in names if name.isdecimal()), default=-1)


def _read_metadata(spark: SparkSession, system: Any, path: Any) -> str:
    file = system.open(path)  # a query of Spark takes a started JVM a second for one line
    try:
        text = spark._jvm.org.apache.commons.io.IOUtils.toString(file, "UTF-8")  # noqa: SLF001 - as in `_hadoop`
    finally:
        file.close()
    run: str = json.loads(text)["id"] if text.strip() else ""
    return run


def _write_metadata(system: Any, path: Any) -> str:
    run = str(uuid.uuid4())
    unfinished = path.suffix(f"-{run}")
    out = system.create(unfinished)
    out.write(json.dumps({"id": run}).encode())
    out.close()
    system.rename(unfinished, path)
    return run


def _hadoop(spark: SparkSession, url: str) -> tuple[Any, Any]:
    path = spark._jvm.org.apache.hadoop.fs.Path(url)  # noqa: SLF001 - PySpark has no API for Hadoop's file systems
    return path.getFileSystem(spark._jsc.hadoopConfiguration()), path  # noqa: SLF001 - as above
