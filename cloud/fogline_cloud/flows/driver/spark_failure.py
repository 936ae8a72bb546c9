"""Spark's failures as one line, by the reaction that they need. Spark's own messages are in the log file."""

import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from fogline.errors import FoglineError, Misconfigured, Unreachable
from fogline_cloud.flows.start.retention_gap import REMEDY
from fogline_cloud.flows.tables.files import FilesGone, files_gone
from fogline_cloud.store.failure import meaning_of

log = logging.getLogger(__name__)
T = TypeVar("T")

_KAFKA_AWAY = re.compile(
    r"kafka\.common\.errors\.(Timeout|Disconnect|Network|BrokerNotAvailable|CoordinatorNotAvailable|LeaderNotAvailable)"
    r"|TimeoutException: (Timed out waiting for a node|Timeout of \d+ms expired|Topic \S+ not present in metadata)"
    r"|No resolvable bootstrap urls"
)
_FILE_GONE = re.compile(r".*(?:FileNotFoundError: |FILE_NOT_EXIST|PATH_NOT_FOUND|FileNotFoundException: ).*\.parquet.*")
_TRIES = 3
_OURS = re.compile(r"^fogline\.errors\.Unreachable: (.*)", re.MULTILINE)  # the last line of a worker's traceback
_KNOWN = {  # Meaning and remedy by pattern. The first match counts.
    r"OffsetOutOfRange|KAFKA_DATA_LOSS|data may have been lost|aged out by Kafka": "Kafka has deleted records that the flow "
    f"has not read: the flow was down for longer than Kafka's retention. {REMEDY}",
    r"ArithmeticException: long overflow": "a record in a raw topic has a timestamp that Spark cannot hold: delete it "
    "(kafka-delete-records), and set the topic's message.timestamp.type to LogAppendTime",
    r"UnknownTopicOrPartition": "a topic of the flow does not exist: run `fogline topics create`",
    r"No space left on device": "the disk of the tables or the checkpoint is full",
    r"streaming queries are concurrently using|CONCURRENT_STREAM_LOG_UPDATE|another streaming query": "another flow runs with "
    "the same checkpoint: stop one of them",
    r"OutOfMemoryError|GC overhead limit": 'Spark ran out of memory: set [flow.spark] "spark.driver.memory" higher, or '
    "max_events_per_batch lower",
    r"Python worker exited unexpectedly": "a worker process was killed several times, "
    "although parsers ran in processes of their own: is there enough memory?",
    r"PYTHON_VERSION_MISMATCH|ModuleNotFoundError": "an executor that came later differs from the driver: run "
    "`fogline flow archive`, and see docs/clusters.md",
    r"Master removed our application|All masters are unresponsive": "the cluster has ended the flow's application: see the "
    "logs of its master and executors",
    r"SaslAuthenticationException|SslAuthenticationException": "Kafka refuses the credentials in [kafka]",
    r"TopicAuthorizationException|ClusterAuthorizationException": "Kafka denies the flow access to a topic or the cluster: "
    "run `fogline topics create --acls` as an administrator of Kafka",
    r"Permission denied|AccessDeniedException": "a folder of the flow is not writable",
}


def repeated(work: Callable[[], T]) -> T:
    """Do the work of a micro-batch, again if files are gone that it wrote or was to read. Raises `FilesGone` at the last time.

    A VACUUM without retention deletes them at any moment. Each try begins with the newest version of the tables.
    """
    for _ in range(_TRIES - 1):
        try:
            return work()
        except (FilesGone, FileNotFoundError, PySparkException, Py4JError) as error:
            if not (missing := _missing_file(error)):
                raise
            log.warning("the micro-batch is done again, because a file is gone (was there a VACUUM?): %s", missing)
    try:
        return work()
    except (FileNotFoundError, PySparkException, Py4JError) as error:
        if missing := _missing_file(error):
            raise files_gone(missing) from error
        raise


def _missing_file(error: BaseException) -> str:
    """Return what is missing in one line, an empty text if the error has another reason."""
    if isinstance(error, FilesGone | FileNotFoundError):
        return str(error).partition("\n")[0]
    found = _FILE_GONE.search(str(error))
    return found[0].strip()[:300] if found else ""


def explained(error: BaseException, log: Path) -> FoglineError:
    """Return `Unreachable` if Kafka or the object store is away, else `Misconfigured` with the remedy and Spark's log."""
    if isinstance(error, FoglineError):
        return error
    text = str(error)
    if found := _OURS.search(text):
        return Unreachable(found[1])
    if _KAFKA_AWAY.search(text):
        return Unreachable("Kafka does not answer")
    if (at_store := meaning_of(text)) is not None:
        return at_store if isinstance(at_store, Unreachable) else Misconfigured(f"{at_store} (see {log})")
    for pattern, meaning in _KNOWN.items():
        if re.search(pattern, text):
            return Misconfigured(f"{meaning} (see {log})")
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    line = f"{type(error).__name__}: {line}" if not line.startswith("[") else line
    return Misconfigured(f"the flow failed: {line[:300]} (see {log})")
