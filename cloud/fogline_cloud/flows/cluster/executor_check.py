"""Lets a task on each executor of a cluster answer for its Python, packages and jars, and for what it reaches."""

import logging
import threading
import uuid
from time import monotonic
from typing import Any

import msgspec
from py4j.protocol import Py4JError
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from fogline.errors import Misconfigured
from fogline_cloud.flows.cluster import executor_probe
from fogline_cloud.flows.cluster.executor_answers import Deployment, ExecutorAnswer, ExecutorQuestion, failed_task, problems
from fogline_cloud.flows.cluster.packages import worker_packages
from fogline_cloud.flows.tables.files import TableFolder, missing_probes
from fogline_cloud.kafka.connection_settings import with_content
from fogline_cloud.settings import CloudSettings
from fogline_cloud.store.options import storage_of

log = logging.getLogger(__name__)

SETTLED_S = 2.0
"""Executors come one by one. Those that come within this time of each other are asked."""
TELL_S = 30.0
"""How often a flow that waits for its first executor says so."""
_ROUNDS = 3  # Spark places tasks, so an executor may get none of a round
_POLL_S = 0.25
_IN_JARS = (
    "reflect('org.apache.kafka.common.utils.AppInfoParser', 'getVersion')",
    "reflect('org.apache.spark.sql.kafka010.JsonUtils', 'partitions', '{}')",
    "reflect('org.apache.spark.sql.delta.actions.Action', 'fromJson', '{}')",
)
"""Expressions that call a method of each jar that executors need."""


def check_executors(spark: SparkSession, settings: CloudSettings, stop: threading.Event) -> None:
    """Wait for executors, and ask each one. Raises `Misconfigured` with one sentence if one differs from the driver.

    Returns at once if `stop` is set. Executors that come later are not asked.
    """
    wait_for_executors(spark, stop)
    if stop.is_set():
        return
    flow = settings.flow
    at = Deployment(
        tables=flow.tables,
        bootstrap=str(settings.kafka["bootstrap.servers"]),
        master=spark.sparkContext.master,
        has_archive=flow.archive is not None,
    )
    asking = _Asking(spark, settings)
    try:
        answers, unseen = asking.ask()
        slots = spark.sparkContext.defaultParallelism
        spark.range(0, slots, 1, slots).selectExpr(*_IN_JARS).collect()
    except (PySparkException, Py4JError) as error:
        raise Misconfigured(failed_task(_whole_text(error), asking.own.python, at) or _first_line(error)) from error
    if found := problems(asking.own, answers, unseen, at):
        others = f" ({len(found) - 1} more executors differ)" if len(found) > 1 else ""
        raise Misconfigured(found[0] + others)
    log.info("%d executors answer as the driver does", len({each.process for each in answers}))


def wait_for_executors(spark: SparkSession, stop: threading.Event) -> None:
    """Wait until the cluster has given executors, and no further one came for `SETTLED_S`, or `stop` is set."""
    known, since, told = 0, monotonic(), monotonic()
    while not stop.wait(_POLL_S):
        now, found = monotonic(), count_executors(spark)
        if found != known:
            known, since = found, now
        if known and now - since > SETTLED_S:
            return
        if not known and now - told > TELL_S:
            told = now
            log.warning("%s has given no executor yet: has it free cores and memory?", spark.sparkContext.master)


class _Asking:
    """Asks executors until each has answered, or `_ROUNDS` times. `own`: the driver's answer."""

    def __init__(self, spark: SparkSession, settings: CloudSettings) -> None:
        self._spark = spark
        self._folder = TableFolder(settings.flow.tables, storage_of(settings))
        packages = [each.name for each in worker_packages()]
        self._question = ExecutorQuestion(packages=packages, kafka=with_content(settings.kafka), folder=self._folder, probe="")
        self.own = _decoded(executor_probe.describe(self._text(f"_probe-{uuid.uuid4()}")))
        missing_probes(self._folder, [self.own.probe])

    def ask(self) -> tuple[list[ExecutorAnswer], set[str]]:
        """Return the answers, and the names of the probes that the driver does not find."""
        cloudpickle.register_pickle_by_value(executor_probe)
        answers: list[ExecutorAnswer] = []
        unseen: set[str] = set()
        for _ in range(_ROUNDS):
            names = [f"_probe-{uuid.uuid4()}" for _ in range(self._spark.sparkContext.defaultParallelism)]
            questions = self._spark.sparkContext.parallelize([self._text(name) for name in names], len(names))
            answers += map(_decoded, questions.map(executor_probe.describe).collect())
            unseen |= set(missing_probes(self._folder, names))
            if len({each.process for each in answers}) >= count_executors(self._spark):
                break
        return answers, unseen

    def _text(self, probe: str) -> str:
        return msgspec.json.encode(msgspec.structs.replace(self._question, probe=probe)).decode()


def _decoded(text: str) -> ExecutorAnswer:
    return msgspec.json.decode(text, type=ExecutorAnswer)


def count_executors(spark: SparkSession) -> int:
    """Return the number of executors that the cluster has given."""
    context: Any = spark.sparkContext._jsc.sc()  # noqa: SLF001 - PySpark's own status tracker does not count them
    return len(context.statusTracker().getExecutorInfos()) - 1  # the driver is one of them


def _whole_text(error: Exception) -> str:
    """Return the text of an error of Spark. PySpark keeps Java's, which names the executor, apart from Python's."""
    return f"{error}\n{getattr(error, '_stackTrace', '')}"


def _first_line(error: Exception) -> str:
    return f"the executors cannot be asked: {str(error).strip().partition(chr(10))[0][:300]}"
