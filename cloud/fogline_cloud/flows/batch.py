"""One micro-batch, and what becomes of it, as driver and workers tell each other. No Spark is needed."""

from datetime import datetime

import msgspec


class Batch(msgspec.Struct, frozen=True):
    """One micro-batch of one checkpoint (`run`) of one flow."""

    flow: str
    run: str
    number: int

    def application(self, what: str) -> str:
        """The Delta transaction application of this run's writes to `what`; the batch number is the version."""
        return f"{self.flow}/{self.run}/{what}"


class File(msgspec.Struct, frozen=True, kw_only=True):
    """A Parquet file that lies in a table's folder. It counts once the table's log names it.

    `path`: below the folder. `size`: bytes. `modified_ms`: since 1970. `day`: its value of the partition column.
    `stats`: Delta's statistics, JSON (Delta protocol, section "Per-file Statistics").
    """

    path: str
    size: int
    modified_ms: int
    day: str
    stats: str


class Landed(msgspec.Struct, frozen=True):
    """What one task wrote of table `events`: rows that stand, and rows that may be there already.

    `replayed`: a gateway could not prove them unsent. `shared`: other gateways may have told of them.
    """

    files: list[File]
    replayed: list[File] = []
    shared: list[File] = []


class Suspects(msgspec.Struct, frozen=True):
    """Files with rows that may be copies of other gateways' rows, and files of the table that may have those.

    `span`: when they were recorded, first and last, with what lies as near as a copy may.
    """

    files: list[str]
    there: list[str]
    span: tuple[datetime, datetime]


class Derived(msgspec.Struct, frozen=True):
    """What one task derived from committed rows: files of table `readings`, and how many events of which outcome."""

    files: list[File]
    outcomes: dict[str, int]
    readings: int
