"""Keeps windows up to date: a query follows the changes of `readings`, and windows that they touch are computed again.

| step of a micro-batch | after a kill |
|---|---|
| 1. the change data feed names the touched windows: of inserted rows, and of deleted ones | repeated |
| 2. these windows are computed from the newest version of `readings` | repeated, perhaps from a newer version |
| 3. one MERGE replaces, inserts and deletes them | the same windows again |
"""

import logging
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import date, timedelta
from functools import reduce
from hashlib import blake2b
from itertools import pairwise
from operator import and_, or_
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark uses
from pyspark.sql.streaming import StreamingQuery

from fogline.errors import Misconfigured
from fogline_cloud import frames
from fogline_cloud.frames.windows_folder import APPLICATION, WindowsFolder
from fogline_cloud.frames.windows_query import START, WindowsQuery

log = logging.getLogger(__name__)

MOST_SPANS = 50
"""Number of spans of days by which files are chosen, at most."""
_LOST = (
    *("DELTA_LOG_FILE_NOT_FOUND", "DELTA_VERSION_NOT_FOUND", "DELTA_VERSIONS_NOT_CONTIGUOUS", "FILE_NOT_EXIST"),
    *("DELTA_MISSING_FILES_UNEXPECTED_VERSION", "DELTA_STREAMING_TRAILING_COMMIT_MISSING"),
)
_POLL_S = 0.5
_COMPUTED = 0  # number of the commit with all windows; those of micro-batches follow


class KeptWindows:
    """Windows that are kept in a folder, until `stop` is called or the session ends."""

    def __init__(self, windows: WindowsQuery, spark: SparkSession, config: frames.Config, folder: WindowsFolder) -> None:
        self._windows = windows
        self._spark = spark
        self._config = config
        self._folder = folder
        self._query: StreamingQuery | None = None
        self._stop = threading.Event()
        self._ended = threading.Event()
        self._failure: Exception | None = None
        self._refusal: Misconfigured | None = None

    @property
    def query(self) -> StreamingQuery:
        """Spark's query. After lost history it is another one."""
        assert self._query is not None, "keep() starts a query"
        return self._query

    def run(self, *, once: bool, every: str) -> None:
        """Bring the windows up to date if `once`; else start to keep them, and go on with that on a thread."""
        with ExitStack() as held:
            held.enter_context(self._folder.leased())
            self._start(once=once, every=every)
            if once:
                self._follow(once=once, every=every)
                self._ended.set()
            else:
                beyond = held.pop_all()
                threading.Thread(
                    target=self._follow_until_stop, args=(beyond, every), name=self._folder.path, daemon=True
                ).start()

    def wait(self, limit_s: float | None = None) -> bool:
        """Wait until nothing keeps the windows any more, after `stop` or an error, which is raised.

        Returns False if that takes longer than `limit_s`.
        """
        if not self._ended.wait(limit_s):
            return False
        if self._failure is not None:
            raise self._failure
        return True

    def stop(self) -> None:
        """End after the running micro-batch, or abandon it: a later start does it again."""
        self._stop.set()
        self.query.stop()
        while not self._ended.wait(_POLL_S):  # after lost history another query may just have begun
            self.query.stop()

    def _follow_until_stop(self, held: ExitStack, every: str) -> None:
        with held:
            try:
                self._follow(once=False, every=every)
            except Exception as error:  # noqa: BLE001 - whatever ended this thread, the user's `wait` raises it
                if not self._stop.is_set():
                    self._failure = error
                    first = str(error).partition("\n")[0]
                    log.error("windows in %s are not kept any more: %s", self._folder.path, first)  # noqa: TRY400 - raised by `wait`
        self._ended.set()

    def _follow(self, *, once: bool, every: str) -> None:
        """Wait for the end of the query. If history is lost, compute all windows, and follow from there."""
        is_second = False
        while True:
            try:
                self.query.awaitTermination()
            except (PySparkException, Py4JError) as error:
                if self._refusal is not None:  # Spark wraps it in a page of Java
                    raise self._refusal from None
                in_vain = is_second and self.query.lastProgress is None
                if in_vain or not any(each in str(error) for each in _LOST):
                    raise
                log.warning("%s: the history of table readings does not go back to these windows", self._folder.path)
                self._folder.begin(self._definition())
                self._start(once=once, every=every)
                is_second = True
            else:
                frames.note_progress(self._spark, self.query)
                return

    def _definition(self) -> str:
        return f"{frames.table_id(self._config)} {self._windows.text}"

    def _start(self, *, once: bool, every: str) -> None:
        options: dict[str, Any] = {}
        if reason := self._folder.open(self._definition()):
            log.warning("%s: computing all windows, because %s", self._folder.path, reason)
            options["startingVersion"] = self._compute_all()
        place = blake2b(self._folder.path.encode(), digest_size=4).hexdigest()  # folders of one name are two readers
        trigger: dict[str, Any] = {"availableNow": True} if once else {"processingTime": every}
        changes = frames.readings(self._spark, self._config, streaming=True, changes=True, **options)
        self._query = (
            changes.writeStream.queryName(f"{self._folder.path.rpartition('/')[2]}-{place}")
            .option("checkpointLocation", self._folder.checkpoint)
            .foreachBatch(self._land)
            .trigger(**trigger)
            .start()
        )

    def _compute_all(self) -> int:
        """Write all windows. Returns a version of `readings` after which the changes are still to come."""
        folder, text = self._folder, self._definition()
        folder.begin(text)
        version = frames.version(self._config)
        every = self._windows.of(frames.readings(self._spark, self._config))
        if not folder.is_claimed:  # of two processes that begin at once, only one is the owner
            every.limit(0).write.format("delta").mode("ignore").save(folder.path)
            folder.claim()
        mark = folder.mark(_COMPUTED)
        options = {"overwriteSchema": "true", "txnAppId": APPLICATION, "txnVersion": str(mark)}
        every.write.format("delta").mode("overwrite").options(**options).save(folder.path)
        folder.require_committed(mark)
        folder.complete(text)
        return version

    def _land(self, changed: DataFrame, number: int) -> None:
        touched = self._windows.touched(changed).persist()
        try:
            first = F.greatest(F.to_date(START), F.lit("0001-01-01").cast("date"))  # earlier ones are no dates of Python
            days = [row[0] for row in touched.select(first).distinct().collect()]
            if days:
                self._merge(touched, merged_spans(days, MOST_SPANS), self._folder.mark(_COMPUTED + 1 + number))
        except Misconfigured as error:
            self._refusal = error
            raise
        finally:
            touched.unpersist()

    def _merge(self, touched: DataFrame, spans: list[tuple[date, date]], mark: int) -> None:
        length = F.expr(f"INTERVAL 1 DAY + INTERVAL {self._windows.size}")
        time = F.col("time")
        within = ((time >= F.lit(first)) & (time < F.lit(last) + length) for first, last in spans)
        near = reduce(or_, within, time.isNull())
        readings = frames.readings(self._spark, self._config).where(near)
        computed = self._windows.of(readings).withColumn("is_there", F.lit(True))
        columns, identity = self._windows.columns, self._windows.identity
        same = reduce(and_, (F.col(f"t.{each}").eqNullSafe(F.col(f"c.{each}")) for each in identity))
        source = (
            touched.alias("t")
            .join(computed.alias("c"), same, "left")
            .select(
                *(F.col(f"t.{each}").alias(each) for each in identity),
                *(F.col(f"c.{each}").alias(each) for each in columns if each not in identity),
                F.col("c.is_there"),
            )
        )
        source.createOrReplaceTempView("fogline_windows")
        session = source.sparkSession
        session.conf.set("spark.databricks.delta.write.txnAppId", APPLICATION)
        session.conf.set("spark.databricks.delta.write.txnVersion", str(mark))
        session.sql(merge_statement(self._folder.path, columns, identity, spans))
        self._folder.require_committed(mark)


def merge_statement(path: str, columns: Sequence[str], identity: Sequence[str], spans: Sequence[tuple[date, date]]) -> str:
    """Return the MERGE of the view `fogline_windows` into a table. `spans`: first and last day of the starts of its rows."""
    same = " AND ".join(f"w.`{each}` <=> s.`{each}`" for each in identity)
    # These bounds choose the table's files: Spark cannot take them from the view.
    days = " OR ".join(
        f"w.`{START}` < DATE'{last}' + INTERVAL 1 DAY" + (f" AND w.`{START}` >= DATE'{first}'" if first > date.min else "")
        for first, last in spans
    )
    return (
        f"MERGE INTO delta.`{path.replace('`', '``')}` w USING fogline_windows s ON {same} AND ({days}) "  # noqa: S608 - names of columns
        "WHEN MATCHED AND s.is_there IS NULL THEN DELETE "
        f"WHEN MATCHED THEN UPDATE SET {', '.join(f'w.`{each}` = s.`{each}`' for each in columns)} "
        f"WHEN NOT MATCHED AND s.is_there THEN INSERT ({', '.join(f'`{each}`' for each in columns)}) "
        f"VALUES ({', '.join(f's.`{each}`' for each in columns)})"
    )


def merged_spans(days: Sequence[date], most: int) -> list[tuple[date, date]]:
    """Return spans, first and last day, that hold all of these days: at most `most`, with as few other days as possible."""
    ordered = sorted({*days})
    gaps = [(following - day, at) for at, (day, following) in enumerate(pairwise(ordered))]
    wide = sorted(at for gap, at in sorted(gaps, reverse=True)[: most - 1] if gap > timedelta(days=1))
    spans, first = [], 0
    for at in [*wide, len(ordered) - 1]:
        spans.append((ordered[first], ordered[at]))
        first = at + 1
    return spans
