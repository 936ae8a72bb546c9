"""The checkpoint folder of a streaming query: its id, and the batches that it has planned and finished."""

import json
import uuid
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """`run`: its uuid. `planned`: its newest batch, `done`: the newest one that Spark knows to be done; -1 for none."""

    run: str
    planned: int
    done: int


def open_checkpoint(spark: SparkSession, folder: str) -> Checkpoint:
    """Read it, wherever Spark would (a path or a URL). A new one is given its uuid here, which Spark then takes."""
    metadata = f"{folder}/metadata"
    system, path = _hadoop(spark, metadata)
    if not system.exists(path):
        return Checkpoint(_write_metadata(system, path), -1, -1)
    first = spark.read.text(metadata).first()
    run: str = json.loads(first[0])["id"] if first is not None else ""
    return Checkpoint(run, _newest(spark, f"{folder}/offsets"), _newest(spark, f"{folder}/commits"))


def _newest(spark: SparkSession, folder: str) -> int:
    system, path = _hadoop(spark, folder)
    names = [status.getPath().getName() for status in system.listStatus(path)] if system.exists(path) else []
    return max((int(name) for name in names if name.isdecimal()), default=-1)


def _write_metadata(system: Any, path: Any) -> str:
    """Write the file that names the run, whole or not at all."""
    run = str(uuid.uuid4())
    unfinished = path.suffix(f"-{run}")
    out = system.create(unfinished)
    out.write(json.dumps({"id": run}).encode())
    out.close()
    system.rename(unfinished, path)
    return run


def _hadoop(spark: SparkSession, place: str) -> tuple[Any, Any]:
    path = spark._jvm.org.apache.hadoop.fs.Path(place)  # noqa: SLF001 - the only way to a file system of Spark's
    return path.getFileSystem(spark._jsc.hadoopConfiguration()), path  # noqa: SLF001 - as above
