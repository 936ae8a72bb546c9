"""Counts the rows of a period in `events` and `readings`, and lists its gap records."""

from datetime import datetime
from typing import Any

import msgspec
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError

from fogline_cloud.flows.tables.files import TableFolder, tables_in
from fogline_cloud.flows.tables.schema import literal
from fogline_cloud.ledger.verification import Period
from fogline_cloud.settings import CloudSettings
from fogline_cloud.store.failure import failure_of
from fogline_cloud.store.options import storage_of

MOST_GAPS = 1000
"""Gap records of a period that are listed, the first ones. Their number is always exact."""
_STORED = "coalesce(recordedtime, ingested)"


class ExplainedGap(msgspec.Struct, frozen=True):
    """Sequences without an event, and why, as the gateway's gap record says."""

    gateway: str
    stream: str
    first: int
    last: int
    reason: str
    detail: str


class PeriodRows(msgspec.Struct, frozen=True):
    """The rows of a period. `events`: their number by outcome. `readings_expected`: values that `events` names.

    `gaps`: the first `MOST_GAPS` of `gap_records`.
    """

    events: dict[str, int]
    readings_expected: int
    readings: int
    gap_records: int
    gaps: list[ExplainedGap]


def period_rows(settings: CloudSettings, period: Period, device: str | None) -> PeriodRows:
    """Read the tables. Gap records name no device: with a device, they are those of all gateways.

    Raises `Misconfigured`, `Unreachable`.
    """
    tables = tables_in(settings.flow.tables, storage_of(settings))
    time = _within(period)
    tenant = literal(settings.tenant)
    of_tenant = f"coalesce(tenant, {tenant}) = {tenant} AND {time}"  # a row without a tenant is ours
    mine = "" if device is None else f" AND device = {literal(device)}"
    prefix = literal(f"/{settings.tenant}/devices/")
    counts = (
        "SELECT outcome, count(*) AS n, coalesce(sum(CASE WHEN outcome = 'ok' THEN array_length(readings) END), 0) AS v "  # noqa: S608 - quoted
        f"FROM t WHERE {of_tenant} AND outcome NOT IN ('gap', 'statement', 'chunk'){mine} GROUP BY outcome ORDER BY outcome"
    )
    events = _rows(tables.events, counts)
    (values,) = _rows(tables.readings, f"SELECT count(*) AS n FROM t WHERE starts_with(source, {prefix}) AND {time}{mine}")  # noqa: S608 - quoted
    is_gap = f"{of_tenant} AND outcome = 'gap' AND gateway IS NOT NULL"
    (gaps,) = _rows(tables.events, f"SELECT count(*) AS n FROM t WHERE {is_gap}")  # noqa: S608 - quoted
    listed = _rows(
        tables.events,
        "SELECT gateway, stream, first_sequence AS first, sequence AS last, coalesce(reason, '') AS reason, "  # noqa: S608 - quoted
        f"coalesce(detail, '') AS detail FROM t WHERE {is_gap} ORDER BY gateway, stream, sequence LIMIT {MOST_GAPS}",
    )
    return PeriodRows(
        {row["outcome"]: row["n"] for row in events},
        sum(int(row["v"]) for row in events),
        int(values["n"]),
        int(gaps["n"]),
        [ExplainedGap(**row) for row in listed],
    )


def _within(period: Period) -> str:
    """Return the condition on the time at which the gateway stored the event, or Kafka, if no gateway did."""
    end = f"{_STORED} < {_timestamp(period.end)}"
    return end if period.begin is None else f"{_STORED} >= {_timestamp(period.begin)} AND {end}"


def _timestamp(moment: datetime) -> str:
    return f"to_timestamp_micros({round(moment.timestamp() * 1_000_000)})"


def _rows(folder: TableFolder, sql: str) -> list[dict[str, Any]]:
    try:
        table = DeltaTable(folder.uri, storage_options=folder.storage)
        found: list[dict[str, Any]] = pa.table(QueryBuilder().register("t", table).execute(sql).read_all()).to_pylist()
        return found  # noqa: TRY300 - named for its type
    except (DeltaError, OSError) as error:
        raise failure_of(error, f"table {folder.path} cannot be read") from None
