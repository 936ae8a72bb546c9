"""Which rows of `events` to parse again."""

from datetime import date, datetime
from functools import reduce
from operator import and_, or_

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from fogline_cloud.flows.tables.schema import ARROW, EventOutcome

PARSED = frozenset({EventOutcome.OK, EventOutcome.SKIP, EventOutcome.SLOW, EventOutcome.DEAD})
"""Outcomes of a record that a parser decides on. The others are counts, gaps and copies."""


Span = tuple[datetime, datetime]


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Rows to parse again. An attribute that is None selects every row.

    `days`: the first and the last UTC day of `ingested`. `ingested`: spans of time, each without its end. `parser`: the parser
    that the row had, or has now.
    """

    outcomes: frozenset[EventOutcome] = PARSED
    days: tuple[date, date] | None = None
    since: datetime | None = None
    ingested: tuple[Span, ...] | None = None
    reason: str | None = None
    parser: str | None = None
    device: str | None = None

    def condition(self) -> pc.Expression:
        """Return what a row must fulfil, except for `parser`, which is known when the row was parsed again.

        `days` are the reader's: they choose the files.
        """
        outcomes = pa.array(sorted(each.value for each in self.outcomes & PARSED), pa.string())
        every = [pc.field("outcome").isin(outcomes)]
        if self.since is not None:
            every.append(pc.field("ingested") >= _moment(self.since))
        if self.ingested is not None:
            every.append(reduce(or_, (_within(each) for each in self.ingested)))
        every += [pc.field(name) == value for name in ("reason", "device") if (value := getattr(self, name)) is not None]
        return reduce(and_, every)


def _within(span: Span) -> pc.Expression:
    begin, end = span
    return (pc.field("ingested") >= _moment(begin)) & (pc.field("ingested") < _moment(end))


def _moment(time: datetime) -> pa.Scalar:
    return pa.scalar(time, ARROW["TIMESTAMP"])
