"""Reads the rows of a device on one thread, one question at a time, in bounded memory: nothing here may slow the line.

What is read is of table versions that are committed. Rows whose `again` is true are left out: another gateway delivered the
same event first.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

from fogline_cloud.console.one_thread import OneThread, within_limit
from fogline_cloud.flows.tables.files import tables_in
from fogline_cloud.flows.tables.schema import EventOutcome
from fogline_cloud.flows.tables.table_log import TableLog
from fogline_cloud.settings import CloudSettings
from fogline_cloud.store.options import storage_of

POINTS: Final = 600
"""Points of a plot: about one for each pixel."""
MAX_METRICS: Final = 200
"""Metrics of a device whose latest readings are shown."""
LATEST: Final = (timedelta(days=1), timedelta(days=30))
"""Times within which latest rows are looked for, one after the other."""
_SCAN: Final = {"batch_size": 32_768, "batch_readahead": 2, "fragment_readahead": 1, "use_threads": False}
_EVENT: Final = (
    "ingested",
    "recordedtime",
    "lane",
    "type",
    "subject",
    "content_type",
    "gateway",
    "outcome",
    "reason",
    "detail",
    "parser",
    "size_bytes",
    "data",
    "id",
)
_GAP: Final = (
    *("ingested", "recordedtime", "gateway", "lane", "stream"),
    *("first_sequence", "sequence", "reason", "detail", "data"),
)
_US: Final = 1_000_000
_WHOLE_ROW: Final = pc.ScalarAggregateOptions(skip_nulls=False)


class Series(msgspec.Struct, frozen=True, array_like=True):
    """A plot: for each part of the time that has numbers its middle in seconds since 1970, and three values of it."""

    time_s: list[float]
    least: list[float]
    mean: list[float]
    greatest: list[float]


class DeviceRows:
    """The tables of the settings. The methods are used on the loop, and raise `Problem` (503)."""

    def __init__(self, settings: CloudSettings, thread: OneThread) -> None:
        self._settings = settings
        self._thread = thread
        self._logs: dict[str, TableLog] = {}

    async def series(self, device: str, metric: str, begin: datetime, end: datetime) -> Series:
        """Return the numbers of a metric between two times, as `POINTS` points at most."""
        return await self._thread.ask(partial(self._series, device, metric, begin, end))

    async def latest(self, device: str, now: datetime) -> list[dict[str, Any]]:
        """Return the newest reading of each metric of a device, by metric."""
        return await self._thread.ask(partial(self._latest, device, now))

    async def events(self, device: str, count: int, now: datetime) -> list[dict[str, Any]]:
        """Return the newest events of a device with their bytes, the newest first."""
        return await self._thread.ask(partial(self._events, device, count, now))

    async def gaps(self, gateways: Sequence[str], count: int, since: datetime) -> list[dict[str, Any]]:
        """Return the gap records of gateways that are in Kafka since a time, the newest first."""
        return await self._thread.ask(partial(self._gaps, gateways, count, since))

    def _rows(self, table: str) -> pads.Dataset:
        """Return the rows of the newest version. On the thread."""
        log = self._logs.get(table)
        if log is None:
            tables = tables_in(self._settings.flow.tables, storage_of(self._settings))
            log = self._logs[table] = TableLog(table, getattr(tables, table))
        return log.rows()

    @staticmethod
    def _batches(rows: pads.Dataset, columns: list[str], where: pads.Expression) -> Iterator[pa.RecordBatch]:
        return within_limit(rows.scanner(columns, filter=where, **_SCAN).to_batches())

    def _series(self, device: str, metric: str, begin: datetime, end: datetime) -> Series:
        where = _of_device(device, begin) & (pc.field("metric") == metric) & pc.field("value").is_valid()
        where &= (pc.field("time") >= begin) & (pc.field("time") < end)
        sums = Sums(int(begin.timestamp() * _US), int(end.timestamp() * _US))
        for batch in self._batches(self._rows("readings"), ["time", "value", "again"], where):
            own = batch.filter(pc.fill_null(pc.invert(batch.column("again")), True))
            sums.add(
                own.column("time").cast(pa.int64()).to_numpy(zero_copy_only=False),
                own.column("value").to_numpy(zero_copy_only=False),
            )
        return sums.series()

    def _latest(self, device: str, now: datetime) -> list[dict[str, Any]]:
        columns = ["metric", "value", "text", "unit", "time", "gateway"]
        rows, found = self._rows("readings"), dict[str, dict[str, Any]]()
        for within in LATEST:
            for batch in self._batches(rows, columns, _of_device(device, now - within)):
                newest = (
                    pa.table(batch)
                    .sort_by("time")
                    .group_by("metric", use_threads=False)
                    .aggregate([(each, "last", _WHOLE_ROW) for each in columns[1:]])
                )
                for row in newest.to_pylist():
                    each = {name.removesuffix("_last"): value for name, value in row.items()}
                    known = found.get(each["metric"])
                    if known is None and len(found) >= MAX_METRICS:
                        continue
                    if known is None or (each["time"] or now) >= (known["time"] or now):
                        found[each["metric"]] = each
            if found:
                break
        return [found[name] for name in sorted(found)]

    def _events(self, device: str, count: int, now: datetime) -> list[dict[str, Any]]:
        events = self._rows("events")
        for within in LATEST:
            where = _of_device(device, now - within)
            times = pa.chunked_array(
                [each.column("ingested") for each in self._batches(events, ["ingested"], where)], pa.timestamp("us", "UTC")
            )
            if not len(times):
                continue
            since = times.take(pc.select_k_unstable(times, min(count, len(times)), [("", "descending")]))[-1]
            rows = pa.Table.from_batches(self._batches(events, list(_EVENT), where & (pc.field("ingested") >= since)))
            found: list[dict[str, Any]] = rows.sort_by([("ingested", "descending")]).slice(0, count).to_pylist()
            return found
        return []

    def _gaps(self, gateways: Sequence[str], count: int, since: datetime) -> list[dict[str, Any]]:
        where = (pc.field("day") >= since.astimezone(UTC).date()) & (pc.field("ingested") >= since)
        where &= (pc.field("outcome") == EventOutcome.GAP.value) & pc.field("gateway").isin(list(gateways))
        newest: pa.Table | None = None
        for batch in self._batches(self._rows("events"), list(_GAP), where):
            found = pa.table(batch) if newest is None else pa.concat_tables([newest, pa.table(batch)])
            newest = found.sort_by([("ingested", "descending")]).slice(0, count)
        return [] if newest is None else newest.to_pylist()


class Sums:
    """Least, mean and greatest number in each of `POINTS` equal parts of a time, from rows in any order. Microseconds."""

    def __init__(self, begin_us: int, end_us: int) -> None:
        self._begin_us = begin_us
        self._step_us = max(1, -(-(end_us - begin_us) // POINTS))
        self._counts = np.zeros(POINTS)
        self._sums = np.zeros(POINTS)
        self._least = np.full(POINTS, np.inf)
        self._greatest = np.full(POINTS, -np.inf)

    def add(self, time_us: npt.NDArray[np.int64], values: npt.NDArray[np.float64]) -> None:
        """Take rows, whose times are within the whole. Values that are no finite numbers are left out."""
        finite = np.isfinite(values)
        part, values = (time_us[finite] - self._begin_us) // self._step_us, values[finite]
        self._counts += np.bincount(part, minlength=POINTS)
        self._sums += np.bincount(part, values, POINTS)
        np.minimum.at(self._least, part, values)
        np.maximum.at(self._greatest, part, values)

    def series(self) -> Series:
        """Return the points of the parts that have values."""
        (parts,) = np.nonzero(self._counts)
        middle_s = (self._begin_us + (parts + 0.5) * self._step_us) / _US
        mean = self._sums[parts] / self._counts[parts]
        return Series(*(each.tolist() for each in (middle_s, self._least[parts], mean, self._greatest[parts])))


def _of_device(device: str, since: datetime) -> pads.Expression:
    """Return the rows of a device that came since a day. A reading may be older than its arrival, but not much younger."""
    return (pc.field("device") == device) & (pc.field("day") >= (since.astimezone(UTC) - timedelta(days=1)).date())
