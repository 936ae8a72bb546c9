"""Rows that several gateways may have told of, held against those that the table has. Arrow in, Arrow out; no Spark."""

from collections.abc import Iterator
from operator import attrgetter

import pyarrow as pa
import pyarrow.compute as pc

from fogline.event import TimeQuality
from fogline_cloud.flows.schema import Outcome
from fogline_cloud.flows.shared import Place, Rules, Sighting, Verdict, judged
from fogline_cloud.settings import Strategy

SIGHTED = (
    *("source", "id", "device", "subject", "gateway", "recordedtime", *Place._fields),
    *("replayed", "again", "timequality"),
)
"""The columns that tell which rows are one event."""
_IDENTITY = attrgetter("source", "id")


def decided(rows: pa.Table, there: pa.Table, rules: Rules) -> pa.Table:
    """Rows of `events` with `again`, and made duplicates where the rules say so.

    `there`: rows of the table that they may be copies of, with the columns `SIGHTED`.
    """
    alike = there.filter(pc.is_in(there.column("id"), pc.unique(rows.column("id"))))
    sightings = [*_sightings(rules, alike, settled=True), *_sightings(rules, rows, settled=False)]
    sightings.sort(key=_IDENTITY)
    said = {each.place: _said_of(verdict, each.rule.strategy) for each, verdict in judged(sightings)}
    places = zip(*(rows.column(name).to_pylist() for name in Place._fields), strict=True)
    again, reasons = zip(*(said[Place(*place)] for place in places), strict=True)
    rows = _with(rows, "again", pa.array(again, pa.bool_()))
    copies = pa.array(each is not None for each in reasons)
    copied = rows.filter(copies)
    nothing = {name: pa.nulls(copied.num_rows, rows.schema.field(name).type) for name in ("detail", "data")}
    instead = {
        "outcome": pa.repeat(Outcome.DUPLICATE.value, copied.num_rows),
        "reason": pa.array([each for each in reasons if each is not None], pa.string()),
        "readings": pa.array([[]] * copied.num_rows, rows.schema.field("readings").type),
        **nothing,
    }
    for name, column in instead.items():
        copied = _with(copied, name, column)
    return pa.concat_tables([rows.filter(pc.invert(copies)), copied])


def _with(rows: pa.Table, name: str, column: pa.Array) -> pa.Table:
    return rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), column)


def _sightings(rules: Rules, rows: pa.Table, *, settled: bool) -> Iterator[Sighting]:
    columns = {name: rows.column(name) for name in SIGHTED}
    columns["recordedtime"] = columns["recordedtime"].cast(pa.int64())
    for cells in zip(*(column.to_pylist() for column in columns.values()), strict=True):
        source, name, device, subject, gateway, recorded_us, *place, replayed, again, quality = cells
        yield Sighting(
            source,
            name,
            gateway or "",
            recorded_us,
            Place(*place),
            rules.of(device, subject),
            replayed=replayed,
            settled=settled,
            again=bool(again),
            sure=quality != TimeQuality.UNSYNCED,
        )


def _said_of(verdict: Verdict, strategy: Strategy) -> tuple[bool | None, str | None]:
    """Column `again`, and why the row is a duplicate, if it is."""
    again = None if strategy is Strategy.NONE else verdict is Verdict.AGAIN
    if verdict is Verdict.REPLAYED:
        return again, "replayed"
    return again, "shared" if again and strategy is Strategy.DROP else None
