"""What stands in the checkpoint folder of a streaming query: its id, and the batches that it has planned."""

import json
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """`run`: the uuid that Spark made with the checkpoint, `None` for a new one. `planned`: its newest batch, or -1."""

    run: str | None
    planned: int


def read_checkpoint(spark: SparkSession, folder: str) -> Checkpoint:
    """Read it, wherever Spark would (a path or a URL)."""
    metadata = f"{folder}/metadata"
    system, path = _hadoop(spark, metadata)
    if not system.exists(path):
        return Checkpoint(None, -1)
    first = spark.read.text(metadata).first()
    run: str = json.loads(first[0])["id"] if first is not None else ""
    offsets = _hadoop(spark, f"{folder}/offsets")[1]
    names = [status.getPath().getName() for status in system.listStatus(offsets)] if system.exists(offsets) else []
    return Checkpoint(run or None, max((int(name) for name in names if name.isdecimal()), default=-1))


def _hadoop(spark: SparkSession, place: str) -> tuple[Any, Any]:
    path = spark._jvm.org.apache.hadoop.fs.Path(place)  # noqa: SLF001 - the only way to a file system of Spark's
    return path.getFileSystem(spark._jsc.hadoopConfiguration()), path  # noqa: SLF001 - as above
