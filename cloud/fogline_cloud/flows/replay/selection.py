"""Which rows of `events` to parse again."""

from datetime import date, datetime
from functools import reduce
from operator import and_

import msgspec
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark uses

from fogline_cloud.flows.schema import EventOutcome

PARSED = frozenset({EventOutcome.OK, EventOutcome.SKIP, EventOutcome.SLOW, EventOutcome.DEAD})
"""Outcomes of a record that a parser decides on. The others are counts, gaps and copies."""


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Rows to parse again. An attribute that is None selects every row.

    `days`: the first and the last UTC day of `ingested`. `parser`: the parser that the row had, or has now.
    """

    outcomes: frozenset[EventOutcome] = PARSED
    days: tuple[date, date] | None = None
    since: datetime | None = None
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
        every += [F.col(name) == F.lit(value) for name in ("reason", "device") if (value := getattr(self, name)) is not None]
        return reduce(and_, every)
