"""Which rows of `events` to parse again."""

from datetime import date, datetime
from functools import reduce
from operator import and_, or_

import msgspec
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark uses

from fogline_cloud.flows.schema import EventOutcome

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

    def condition(self) -> Column:
        """Return what a row must fulfil, except for `parser`, which is known when the row was parsed again."""
        every = [F.col("outcome").isin(sorted(self.outcomes & PARSED))]
        if self.days is not None:
            every.append(F.col("day").between(*self.days))
        if self.since is not None:
            every += [F.col("ingested") >= F.lit(self.since), F.col("day") >= F.lit(self.since.date())]
        if self.ingested is not None:
            every.append(reduce(or_, (_within(each) for each in self.ingested)))
        every += [F.col(name) == F.lit(value) for name in ("reason", "device") if (value := getattr(self, name)) is not None]
        return reduce(and_, every)


def _within(span: Span) -> Column:
    begin, end = span
    times = (F.col("ingested") >= F.lit(begin)) & (F.col("ingested") < F.lit(end))
    return times & F.col("day").between(begin.date(), end.date())  # the partition column, so that Spark skips other days
