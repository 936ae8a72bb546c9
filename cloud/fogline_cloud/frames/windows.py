"""Windows over table `readings` that stay exact: late events, replays and deletions reach the windows that they change.

    from fogline_cloud.frames import session
    from fogline_cloud.frames.windows import windows

    hourly = windows(["device", "metric"], "1 hour", {"mean": "avg(value)", "values": "count(*)"})
    hourly.keep(session("cloud.toml"), "cloud.toml", into="hourly", once=True)

A watermark drops what comes after it: the events of a gateway that was offline for three days are in `readings`, and in none
of its windows. Here each change of `readings` names the windows that it touches, and these are computed again from `readings`.

| step of a micro-batch | after a kill |
|---|---|
| 1. the change data feed names the touched windows: of inserted rows, and of deleted ones | repeated |
| 2. these windows are computed from the newest version of `readings` | repeated, perhaps from a newer version |
| 3. one MERGE replaces, inserts and deletes them | the same windows again |
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import reduce
from hashlib import blake2b
from itertools import pairwise
from operator import and_, or_
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark uses
from pyspark.sql.streaming import StreamingQuery

from fogline.errors import Misconfigured
from fogline_cloud import frames
from fogline_cloud.flows.start.checkpoint_files import CheckpointFiles
from fogline_cloud.flows.tables.files import TableFolder, delete_below

log = logging.getLogger(__name__)

CHECKPOINT = "_checkpoint"
"""Folder of the streaming query's checkpoint, within the folder of the windows. Delta ignores names that begin with `_`."""
MOST_SPANS = 50
"""Number of spans of days by which the files of `readings` are chosen, at most."""
_START, _END = "start", "end"
_LOST = (
    *("DELTA_LOG_FILE_NOT_FOUND", "DELTA_VERSION_NOT_FOUND", "DELTA_VERSIONS_NOT_CONTIGUOUS", "FILE_NOT_EXIST"),
    *("DELTA_MISSING_FILES_UNEXPECTED_VERSION", "DELTA_STREAMING_TRAILING_COMMIT_MISSING"),
)


def windows(keys: Sequence[str], size: str, aggregates: Mapping[str, str], where: str = "true") -> "Windows":
    """Return windows over `readings`: for each of `keys` and each time of the length `size`, such as "1 hour".

    `aggregates`: expressions of Spark SQL by the name of their column. `where`: a condition on the rows, in SQL. The time of a
    row is `time`, or `ingested` if it has none.
    """
    taken = {_START, _END} & {*keys, *aggregates}
    if taken or not keys or not aggregates or {*keys} & {*aggregates}:
        raise Misconfigured("windows: expected keys and aggregates with different names, and neither `start` nor `end`")
    return Windows(tuple(keys), size, dict(aggregates), where)


@dataclass(frozen=True)
class Windows:
    """See `windows`."""

    keys: tuple[str, ...]
    size: str
    aggregates: Mapping[str, str]
    where: str = "true"

    def of(self, readings: DataFrame) -> DataFrame:
        """Return the windows of these rows: `start`, `end`, the keys, the aggregates."""
        window = F.window(_time(), self.size)
        return (
            readings.where(self.where)
            .groupBy(window.alias("window"), *self.keys)
            .agg(*(F.expr(text).alias(name) for name, text in self.aggregates.items()))
            .select(F.col("window.start").alias(_START), F.col("window.end").alias(_END), *self.keys, *self.aggregates)
        )

    def keep(
        self,
        spark: SparkSession,
        config: frames.Config = "cloud.toml",
        *,
        into: str,
        once: bool = False,
        every: str = "1 minute",
    ) -> StreamingQuery:
        """Keep the windows in a Delta table in the folder `into`, which is made. Returns the running query.

        `once`: bring them up to date, and return when that is done; else they follow at intervals of `every`. Only one process
        may keep a folder. If the reader was away for longer than the tables' history, all windows are computed again.
        """
        kept = _KeptWindows(self, spark, config, _absolute(into))
        query = kept.start(once=once, every=every)
        if not once:
            return query
        try:
            query.awaitTermination()
        except (PySparkException, Py4JJavaError) as error:
            if not any(each in str(error) for each in _LOST):
                raise
            log.warning("%s: the history of table readings does not go back to these windows: computing all of them", into)
            kept.forget()
            query = kept.start(once=once, every=every)
            query.awaitTermination()
        frames.note_progress(spark, query)
        return query


def _absolute(folder: str) -> str:
    return folder.rstrip("/") if "://" in folder else str(Path(folder).absolute())  # Java keeps the folder in which it began


def _time() -> Column:
    return F.coalesce("time", "ingested")


@dataclass(frozen=True)
class _KeptWindows:
    windows: Windows
    spark: SparkSession
    config: frames.Config
    into: str

    @property
    def _folder(self) -> TableFolder:
        return TableFolder(self.into, frames.storage(self.config))

    @property
    def _checkpoint(self) -> str:
        return f"{self.into}/{CHECKPOINT}"

    def start(self, *, once: bool, every: str) -> StreamingQuery:
        options: dict[str, Any] = {}
        state = CheckpointFiles(self._checkpoint, self._folder.storage).state()
        if state is None or state.done < 0:
            if state is not None:  # a first micro-batch was planned: deletions since would be missed
                self.forget()
            options["startingVersion"] = self._compute_all()
        place = blake2b(self.into.encode(), digest_size=4).hexdigest()  # folders of one name are two readers
        trigger: dict[str, Any] = {"availableNow": True} if once else {"processingTime": every}
        changes = frames.readings(self.spark, self.config, streaming=True, changes=True, **options)
        return (
            changes.writeStream.queryName(f"{self.into.rpartition('/')[2]}-{place}")
            .option("checkpointLocation", self._checkpoint)
            .foreachBatch(self._land)
            .trigger(**trigger)
            .start()
        )

    def forget(self) -> None:
        """Begin anew: the next start computes all windows."""
        delete_below(self._folder, CHECKPOINT)

    def _compute_all(self) -> int:
        """Write all windows. Returns a version of `readings` after which the changes are still to come."""
        version = frames.version(self.config)
        every = self.windows.of(frames.readings(self.spark, self.config))
        every.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(self.into)
        return version

    def _land(self, changed: DataFrame, _number: int) -> None:
        window = F.window(_time(), self.windows.size)
        touched = changed.where(self.windows.where).select(window.start.alias(_START), *self.windows.keys).distinct().persist()
        try:
            days = [
                row[0]
                for row in touched.select(F.greatest(F.to_date(_START), F.lit("0001-01-01").cast("date"))).distinct().collect()
            ]
            if days:
                self._merge(touched, merged_spans(days, MOST_SPANS))
        finally:
            touched.unpersist()

    def _merge(self, touched: DataFrame, spans: list[tuple[date, date]]) -> None:
        length = F.expr(f"INTERVAL 1 DAY + INTERVAL {self.windows.size}")
        time = F.col("time")
        within = ((time >= F.lit(first)) & (time < F.lit(last) + length) for first, last in spans)
        near = reduce(or_, within, time.isNull())
        computed = self.windows.of(frames.readings(self.spark, self.config).where(near)).withColumn("is_there", F.lit(True))
        identity = (_START, *self.windows.keys)
        names = (_START, _END, *self.windows.keys, *self.windows.aggregates)
        source = touched.alias("t").join(
            computed.alias("c"), reduce(and_, (F.col(f"t.{each}").eqNullSafe(F.col(f"c.{each}")) for each in identity)), "left"
        )
        source = source.select(
            *(F.col(f"t.{each}").alias(each) for each in identity),
            *(F.col(f"c.{each}").alias(each) for each in names if each not in identity),
            F.col("c.is_there"),
        )
        source.createOrReplaceTempView("fogline_windows")
        same = " AND ".join(f"w.`{each}` <=> s.`{each}`" for each in identity)
        columns = ", ".join(f"`{each}`" for each in names)
        values = ", ".join(f"s.`{each}`" for each in names)
        updates = ", ".join(f"w.`{each}` = s.`{each}`" for each in names)
        source.sparkSession.sql(
            f"MERGE INTO delta.`{self.into.replace('`', '``')}` w USING fogline_windows s ON {same} "  # noqa: S608 - names of columns
            "WHEN MATCHED AND s.is_there IS NULL THEN DELETE "
            f"WHEN MATCHED THEN UPDATE SET {updates} "
            f"WHEN NOT MATCHED AND s.is_there THEN INSERT ({columns}) VALUES ({values})"
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
