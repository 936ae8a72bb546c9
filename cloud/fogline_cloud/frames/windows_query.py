"""What windows are, as queries: all of some rows, and those that some rows touch."""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark uses

START, END = "start", "end"


@dataclass(frozen=True)
class WindowsQuery:
    """Windows of the length `size` for each of `keys`. See `fogline_cloud.frames.windows.windows`."""

    keys: tuple[str, ...]
    size: str
    aggregates: Mapping[str, str]
    where: str = "true"
    slide: str | None = None

    @property
    def text(self) -> str:
        """All that decides about the windows."""
        return msgspec.json.encode([self.keys, self.size, self.slide, [*self.aggregates.items()], self.where]).decode()

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the windows' columns."""
        return (START, END, *self.keys, *self.aggregates)

    @property
    def identity(self) -> tuple[str, ...]:
        """The names of the columns that tell windows apart."""
        return (START, *self.keys)

    def of(self, readings: DataFrame) -> DataFrame:
        """Return the windows of these rows: `start`, `end`, the keys, the aggregates."""
        return (
            readings.where(self.where)
            .groupBy(self._window(), *self.keys)
            .agg(*(F.expr(text).alias(name) for name, text in self.aggregates.items()))
            .select(F.col("window.start").alias(START), F.col("window.end").alias(END), *self.keys, *self.aggregates)
        )

    def touched(self, changed: DataFrame) -> DataFrame:
        """Return `start` and keys of the windows that these rows are in."""
        within = changed.where(self.where).select(self._window(), *self.keys)
        return within.select(F.col("window.start").alias(START), *self.keys).distinct()

    def _window(self) -> Column:
        return F.window(F.coalesce("time", "ingested"), self.size, self.slide).alias("window")
