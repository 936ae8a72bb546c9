"""One micro-batch of a flow, and a file with its rows, as values."""

import msgspec


class MicroBatch(msgspec.Struct, frozen=True):
    """One micro-batch of one checkpoint (`run`) of one flow."""

    flow: str
    run: str
    number: int

    def application(self, table: str) -> str:
        """Return the Delta transaction application of this run's commits to `table`. Its version is the batch number."""
        return f"{self.flow}/{self.run}/{table}"


class File(msgspec.Struct, frozen=True, kw_only=True):
    """A Parquet file in a table's folder. Its rows count as soon as the table's log names it."""

    path: str  # relative to the folder
    size: int  # bytes
    modified_ms: int  # since 1970
    day: str  # value of the partition column
    stats: str  # JSON (Delta protocol, section "Per-file Statistics")
