"""The flow's Spark session, local or on a cluster."""

import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from fogline.errors import Misconfigured
from fogline.installed import find_jars, find_java
from fogline_cloud.settings import CloudSettings, FlowSettings, Scalar
from fogline_cloud.store.options import LOG_STORE, hadoop_secrets, keys_of, spark_options, uses_store

_LOGGING = Path(__file__).with_name("log4j2.properties")
_LOCAL = re.compile(r"local(?:\[(\*|[0-9]+)(?:,[0-9]+)?\])?")
RAW_POOL = "raw"
"""Spark's scheduler pool of the query that writes `raw`. It gets as many free slots as all others together."""
_DEFAULT_MASTER = "local[2]"
_UNPACKED = "env"
"""Folder of the environment in the working folder of an executor."""
_ATTEMPTS = 4  # number of times that a task is tried if its worker dies

_ALWAYS: dict[str, Scalar] = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.ui.showConsoleProgress": False,  # a bar is no line of a log
    "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|private key",  # Spark's own, and a PEM key as a value
    "spark.scheduler.mode": "FAIR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.maxConcurrentOutputFileWriters": 8,
    "spark.sql.execution.arrow.maxRecordsPerBatch": 5000,
    "spark.sql.execution.arrow.maxBytesPerBatch": 16 << 20,
    "spark.databricks.delta.optimize.maxFileSize": 128 << 20,
    "spark.databricks.delta.optimize.minFileSize": 64 << 20,
}
_LOG_STORES: dict[str, Scalar] = {f"spark.delta.logStore.{scheme}.impl": LOG_STORE for scheme in ("s3a", "s3")}
"""Delta's own one for S3 overwrites a commit that another program makes at the same time."""
_CLASS_PATH = "spark.driver.extraClassPath"
_EXECUTOR_PATH = "spark.executorEnv.PYTHONPATH"
_OF_JARS = {
    "org.apache.spark.sql.kafka010.KafkaSourceProvider": "Kafka's source",
    "org.apache.kafka.clients.consumer.KafkaConsumer": "Kafka's client",
    "io.delta.tables.DeltaTable": "Delta",
}
"""A class of each of our jars that a flow needs, and what it is."""
_QUICK_JAVA = (
    "-XX:+UseParallelGC -XX:+UnlockDiagnosticVMOptions -XX:-C1UpdateMethodData -XX:Tier4InvocationThreshold=150000"
    " -XX:Tier4MinInvocationThreshold=18000 -XX:Tier4CompileThreshold=450000 -XX:Tier4BackEdgeThreshold=1200000"
)
"""Java's second compiler for code that runs 30 times as often as by default, and no profile for it (decision 0043)."""
_LOCALLY: dict[str, Scalar] = {
    "spark.driver.defaultJavaOptions": _QUICK_JAVA,
    "spark.ui.enabled": False,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.python.daemon.module": "fogline_cloud.flows.driver.worker_daemon",
    "spark.sql.shuffle.partitions": 2,
    "spark.databricks.delta.snapshotPartitions": 2,
    "spark.sql.streaming.metricsEnabled": False,
}


def is_local(master: str) -> bool:
    """Return True if driver and workers are this process and its children."""
    return _LOCAL.fullmatch(master) is not None


def is_submitted() -> bool:
    """Return True if spark-submit has started this process, or a user's PYSPARK_SUBMIT_ARGS stand for it."""
    return "PYSPARK_GATEWAY_PORT" in os.environ or "--master" in os.environ.get("PYSPARK_SUBMIT_ARGS", "")


def spark_master(flow: FlowSettings) -> str | None:
    """Return the master to set, `None` to leave it to spark-submit. Raises `Misconfigured` if both choose one.

    A local one gets `_ATTEMPTS` tries of a task, and a slot for the query that writes `raw`.
    """
    if is_submitted():
        if flow.master is not None:
            raise Misconfigured(
                f"[flow] master = {flow.master}, but spark-submit has chosen a master too: "
                "delete the setting, or run `fogline flow run` without spark-submit"
            )
        return None
    match = _LOCAL.fullmatch(chosen := flow.master or _DEFAULT_MASTER)
    if match is None:
        return chosen
    slots = match[1] or "1"
    return f"local[{int(slots) + bool(flow.raw_days) if slots.isdecimal() else slots},{_ATTEMPTS}]"


def parsing_slots(slots: int, flow: FlowSettings) -> int:
    """Return how many of Spark's slots parsing may occupy: hanging parsers leave one to the query that writes `raw`."""
    return max(1, slots - 1) if flow.raw_days else slots


def log_file(settings: CloudSettings, command: str = "") -> Path:
    """Return the path of Spark's own log: beside the checkpoint, or in the working folder if the checkpoint is a URL.

    `command`: one that may run beside the flow, and so has a log of its own.
    """
    checkpoint, suffix = settings.flow.checkpoint, f"-{command}" if command else ""
    if "://" in checkpoint:
        return Path(f"fogline-flow-{settings.flow.name}{suffix}.log").absolute()
    return Path(f"{checkpoint}{suffix}.log")


def class_archive() -> Path:
    """Return the path of the archive of Spark's classes, which need not exist. Raises `Misconfigured` without the jars."""
    return find_jars("spark")[0].parent.with_suffix(".jsa")


def java_options(log: Path) -> str:
    """Return the options of the flow's JVM, but for the archive of classes, of which it never speaks. `log`: Spark's own."""
    logging_to = f'-Dlog4j2.configurationFile="{_LOGGING.as_uri()}" -Dfogline.log="{log}"'
    return f"{logging_to} -Duser.timezone=UTC -Xlog:cds=off -Xlog:cds+dynamic=off"


def _archive_options() -> str:
    """Return the option of a JVM that uses the archive of classes, if it can."""
    archive = class_archive()
    return f' -XX:SharedArchiveFile="{archive}"' if archive.exists() else ""


def configuration(settings: CloudSettings, log: Path | None = None) -> dict[str, str]:
    """Return every Spark setting of the flow; `[flow.spark]` overrides, or adds jars. Raises `Misconfigured` without ours.

    `log`: the path of Spark's own log. Default: that of the flow.
    """
    flow = settings.flow
    local = is_local(spark_master(flow) or "")
    stored = uses_store(settings)
    jars = [str(each) for name in (("spark", "s3") if stored else ("spark",)) for each in find_jars(name)]
    chosen: dict[str, Scalar] = {
        **_ALWAYS,
        **_LOG_STORES,
        **(spark_options(settings.store) if stored else {}),
        "spark.app.name": f"fogline-{flow.name}",
        "spark.driver.extraJavaOptions": java_options(log or log_file(settings)) + (_archive_options() if local else ""),
        **(_LOCALLY if local else {}),
        **flow.spark,
        **({} if local else _for_executors(flow, jars)),
    }
    if local:  # Java maps classes of its class path alone from an archive; a cluster's workers need copies of the jars
        own = [str(flow.spark[_CLASS_PATH])] if _CLASS_PATH in flow.spark else []
        chosen[_CLASS_PATH] = os.pathsep.join([*jars, *own])
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in chosen.items()}


def _for_executors(flow: FlowSettings, jars: list[str]) -> dict[str, Scalar]:
    """Return the settings that bring jars and environment to a cluster's executors, beside those of the user."""
    lists = {"spark.jars": jars}
    chosen: dict[str, Scalar] = {}
    if flow.archive is not None:
        if "://" not in flow.archive and not Path(flow.archive).is_file():
            raise Misconfigured(f"[flow] archive = {flow.archive}: there is no such file: run `fogline flow archive`")
        lists["spark.archives"] = [f"{flow.archive}#{_UNPACKED}"]
        own = str(flow.spark.get(_EXECUTOR_PATH, ""))
        chosen[_EXECUTOR_PATH] = f"{_UNPACKED}:{own}" if own else _UNPACKED
    for key, ours in lists.items():
        chosen[key] = ",".join([*ours, *filter(None, [str(flow.spark.get(key, ""))])])
    return chosen


def executor_python(flow: FlowSettings) -> str:
    """Return the Python of a cluster's executors: the user's choice, else the driver's, by its name with an archive."""
    own = f"python{sys.version_info.major}.{sys.version_info.minor}" if flow.archive else sys.executable
    return str(flow.spark.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON") or own)


def start_session(settings: CloudSettings, log: Path | None = None) -> SparkSession:
    """Start a session, or return the running one. Raises `Misconfigured`. `log`: as of `configuration`."""
    log = log or log_file(settings)
    java = find_java()
    master = spark_master(settings.flow)
    local = master is not None and is_local(master)
    os.environ["PYSPARK_PYTHON"] = sys.executable if local else executor_python(settings.flow)
    secrets = hadoop_secrets(keys_of(settings)) if uses_store(settings) else {}
    log.parent.mkdir(parents=True, exist_ok=True)
    builder = SparkSession.builder
    for key, value in (({} if master is None else {"spark.master": master}) | configuration(settings, log)).items():
        builder = builder.config(key, value)
    with own_signals():
        try:
            spark = builder.getOrCreate()
        except (PySparkException, OSError) as error:
            first = str(error).strip().partition("\n")[0]
            raise Misconfigured(f"Spark does not start with {java}: {first} (see {log})") from error
    _require_jars(spark)
    for key, value in secrets.items():  # not in the configuration, which is on Java's command line
        spark.sparkContext._jsc.hadoopConfiguration().set(key, value)  # noqa: SLF001 - PySpark has no API for Hadoop's options
    spark.sparkContext.setLogLevel("WARN")
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # Spark's own log has the same errors
    return spark


def _require_jars(spark: SparkSession) -> None:
    """Raise `Misconfigured` unless the driver has the classes of our jars: spark-submit alone decides what it has."""
    jvm: Any = spark._jvm  # noqa: SLF001 - PySpark has no other name for its JVM
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    for name, what in _OF_JARS.items():
        try:
            jvm.java.lang.Class.forName(name, False, loader)
        except Py4JError:
            raise Misconfigured(
                f"Spark's driver has no jar of {what}: start it by `fogline flow run --master URL`, "
                "or by the line that `fogline flow submit-options` prints"
            ) from None


@contextmanager
def spark_session(settings: CloudSettings, log: Path | None = None) -> Iterator[SparkSession]:
    """Start a session as `start_session` does, and stop it at the end of the block."""
    spark = start_session(settings, log)
    try:
        yield spark
    finally:
        with suppress(Py4JError):  # Java has ended already
            spark.stop()


@contextmanager
def own_signals() -> Iterator[None]:
    """Keep this process's SIGINT handler, which a new Spark context replaces; it gets a SIGINT when the JVM has started.

    PySpark leaves a JVM behind for good if it is interrupted while it starts one. A JVM that is started within this ignores
    SIGTERM, which may go to the whole process group: this process finishes the micro-batch first, and then ends the JVM.
    """
    if threading.current_thread() is not threading.main_thread():
        with _java_ignores_sigterm():
            yield
        return
    came = threading.Event()
    former = signal.signal(signal.SIGINT, lambda *_: came.set())
    try:
        with _java_ignores_sigterm():
            yield
    finally:
        signal.signal(signal.SIGINT, former)
        if came.is_set():
            signal.raise_signal(signal.SIGINT)


_java_starts = threading.Event()


@contextmanager
def _java_ignores_sigterm() -> Iterator[None]:
    _java_starts.set()
    try:
        yield
    finally:
        _java_starts.clear()


def _in_child() -> None:
    if _java_starts.is_set():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # Java leaves a signal alone that is ignored when it starts


os.register_at_fork(after_in_child=_in_child)  # PySpark starts Java itself, and takes no function for this
