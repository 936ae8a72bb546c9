"""Records that Kafka deleted before the flow had read them: found, refused, and accepted as rows of `events`."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

import msgspec
import pyarrow as pa

from fogline.errors import Misconfigured
from fogline_cloud.flows.start.positions import Bounds, Positions
from fogline_cloud.flows.tables.batch import File, MicroBatch
from fogline_cloud.flows.tables.files import FileWriter, TableFolder
from fogline_cloud.flows.tables.schema import MEASURED, RETENTION, STORED, EventOutcome

REMEDY = "`fogline flow resume` shows the offsets, and `fogline flow resume --accept-gap` lets the flow continue after them"


class RetentionGap(msgspec.Struct, frozen=True):
    """Offsets `first` to `last` of a partition, which Kafka does not have any more. Transaction markers are among them."""

    topic: str
    partition: int
    first: int
    last: int

    @property
    def count(self) -> int:
        """The largest possible number of lost records."""
        return self.last - self.first + 1

    @property
    def text(self) -> str:
        """The gap in words."""
        records = "1 record" if self.count == 1 else f"{self.count} records"
        return f"{self.topic}[{self.partition}]: offsets {self.first} to {self.last} ({records} at most)"


def find_gaps(positions: Positions, bounds: Bounds) -> list[RetentionGap]:
    """Return the gap of each partition whose next record Kafka has deleted."""
    return [
        RetentionGap(*partition, following, bounds[partition][0] - 1)
        for partition, following in sorted(positions.items())
        if partition in bounds and following < bounds[partition][0]
    ]


def require_no_gap(positions: Positions, bounds: Bounds) -> None:
    """Raise `Misconfigured` with the command that helps if Kafka has deleted records that were not read."""
    if gaps := find_gaps(positions, bounds):
        more = f" and {len(gaps) - 1} more partitions" if len(gaps) > 1 else ""
        raise Misconfigured(f"Kafka has deleted records that the flow has not read: {gaps[0].text}{more}. {REMEDY}")


def write_gap_rows(folder: TableFolder, gaps: Iterable[RetentionGap], tenant: str, batch: MicroBatch) -> list[File]:
    """Write a row of `events` for each gap. Returns the files to commit."""
    now = datetime.now(UTC)
    same = {"ingested": now, "tenant": tenant, "replayed": False, "readings": [], "size_bytes": 0}
    same |= {
        "outcome": EventOutcome.GAP.value,
        "reason": RETENTION,
        "flow": batch.flow,
        "run": batch.run,
        "batch": batch.number,
    }
    rows = [dict(_cells(gap), **same) for gap in gaps]
    with FileWriter(folder, MEASURED["events"]) as writer:
        writer.add(pa.RecordBatch.from_pylist(rows, schema=STORED))
        return writer.close()


def _cells(gap: RetentionGap) -> Iterator[tuple[str, object]]:
    yield from (("topic", gap.topic), ("partition", gap.partition), ("offset", gap.last))
    yield "detail", f"Kafka deleted records before the flow read them: {gap.text}"
