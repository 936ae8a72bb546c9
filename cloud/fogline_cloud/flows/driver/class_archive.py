"""Writes the archive of Spark's classes, which a JVM maps instead of reading, checking and linking each class.

A JVM that does not fit it (another version, other jars) leaves it unused by itself, but one that maps a truncated archive dies.
So the file gets its name when it is whole and on the disk. Source: the manual of `java` 17, "Application Class Data Sharing".
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from subprocess import Popen, TimeoutExpired
from threading import Event
from typing import Any
from zipfile import ZipFile

import pyarrow as pa
from msgspec.structs import replace
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

from fogline.errors import Misconfigured
from fogline.installed import find_jars
from fogline_cloud.flows.driver.commit import mark_replayed, warm_up
from fogline_cloud.flows.driver.session import class_archive, java_options, log_file, start_session
from fogline_cloud.flows.driver.table_creation import make_tables
from fogline_cloud.flows.tables.files import tables_in
from fogline_cloud.settings import CloudSettings, FlowSettings

BATCHES = 3
"""Micro-batches of the rehearsal. The first one loads most classes."""
BATCHES_LIMIT_S = 120.0
WRITING_LIMIT_S = 300.0
_KAFKA = ("org/apache/kafka/clients/", "org/apache/kafka/common/", "org/apache/spark/sql/kafka010/")


def write_class_archive() -> Path:
    """Start Spark, do what a flow does, and write the classes that it loaded. Takes about a minute. Raises `Misconfigured`.

    Uses PySpark's only session of a process, and ends it. If it is interrupted, the former archive stays.
    """
    archive = class_archive()
    fresh = archive.with_suffix(f".{os.getpid()}")
    try:
        fresh.touch()
        fresh.unlink()  # Java leaves out a file that exists
    except OSError as error:
        raise Misconfigured(f"{archive}: the archive of Spark's classes cannot be written: {error.strerror}") from None
    try:
        with tempfile.TemporaryDirectory() as folder:
            _run(Path(folder), fresh)
        with fresh.open("rb") as file:
            os.fsync(file.fileno())
        fresh.replace(archive)
    finally:
        fresh.unlink(missing_ok=True)
    return archive


def _run(folder: Path, archive: Path) -> None:
    flow = FlowSettings(tables=str(folder / "tables"), checkpoint=str(folder / "checkpoint"), master="local[2]")
    settings = CloudSettings(tenant="rehearsal", flow=flow)
    options = f'{java_options(log_file(settings))} -XX:ArchiveClassesAtExit="{archive}"'
    try:
        spark = start_session(replace(settings, flow=replace(flow, spark={"spark.driver.extraJavaOptions": options})))
        rehearse(spark, folder)
        spark.stop()
    except BaseException:  # an interrupt too: Java would write the archive first
        if (gateway := SparkContext._gateway) is not None:  # noqa: SLF001 - PySpark has no other name for its JVM
            gateway.proc.kill()
        raise
    status = _end(SparkContext._gateway.proc)  # noqa: SLF001 - as above
    if status != 0 or not archive.exists():
        raise Misconfigured(f"Java ended with status {status} and without an archive of Spark's classes; is the disk full?")


def _end(java: "Popen[bytes]") -> int | None:
    """Let the JVM end, and return its status, None if it takes too long."""
    with suppress(OSError):
        if java.stdin is not None:
            java.stdin.close()  # its sign to end
    try:
        return java.wait(WRITING_LIMIT_S)
    except TimeoutExpired:
        java.kill()
        java.wait()
        return None


def rehearse(spark: SparkSession, folder: Path) -> None:
    """Use what a flow uses of Spark: tables, a streaming query, Python workers, files and a join; and load Kafka's clients."""
    warm_up(spark, 1)
    make_tables(spark, tables_in(str(folder / "tables"), {}))
    done = Event()

    def land(rows: DataFrame, number: int) -> None:
        rows.coalesce(1).mapInArrow(_same, rows.schema).collect()
        if number + 1 == BATCHES:
            done.set()

    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    query = source.writeStream.foreachBatch(land).option("checkpointLocation", str(folder / "checkpoint")).start()
    try:
        if not done.wait(BATCHES_LIMIT_S):
            raise Misconfigured(f"Spark did not run {BATCHES} micro-batches in {BATCHES_LIMIT_S:.0f} s")
    finally:
        query.stop()
    rows = spark.read.format("delta").load(str(folder / "tables" / "events"))
    mark_replayed(rows, rows).write.parquet(str(folder / "marked"))
    _load_kafka(spark)


def _load_kafka(spark: SparkSession) -> None:
    """Load the classes of Kafka's clients and of Spark's source: a rehearsal has no broker to use them with."""
    jvm: Any = spark._jvm  # noqa: SLF001 - PySpark has no other name for its JVM
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    for jar in find_jars("spark"):
        with ZipFile(jar) as archive:
            files = [each for each in archive.namelist() if each.startswith(_KAFKA) and each.endswith(".class")]
        for each in files:
            with suppress(Py4JError):  # a class that needs a library which is not there
                jvm.java.lang.Class.forName(each.removesuffix(".class").replace("/", "."), False, loader)


def _same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches
