"""One micro-batch as a value, and the messages that driver and workers exchange about it. No Spark is needed."""

from datetime import datetime

import msgspec

from fogline_cloud.flows.parse_spans import TracedRow


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


class StagedFiles(msgspec.Struct, frozen=True):
    """Files that one task wrote and no commit names yet: with rows of `events`, and of `readings` where the list says so."""

    files: list[File]  # to commit as they are
    readings: list[File] = []  # to commit after them: rows of `readings`
    replayed: list[File] = []  # to compare with the table first: a gateway may have sent them before
    shared: list[File] = []  # to compare with the table first: other gateways may have sent them too
    killers: list[str] = []  # parsers that ended their process


class Suspects(msgspec.Struct, frozen=True):
    """Staged files with rows that other gateways may have sent too, and the committed files to compare them with."""

    staged: list[str]  # paths of files
    committed: list[str]  # paths of files
    span: tuple[datetime, datetime]  # first and last `recordedtime` that a copy of a staged row may have


class Derived(msgspec.Struct, frozen=True):
    """Result of one task that derived records from committed rows.

    `files`: of table `readings`. `outcomes`, `readings`: counts. `traced`: rows with a trace, if the task asks for them.
    """

    files: list[File]
    outcomes: dict[str, int]
    readings: int
    traced: list[TracedRow] = []
