"""Rows of `events` that were not parsed, read without Spark."""

from collections.abc import Iterable
from datetime import datetime
from functools import reduce
from operator import and_
from typing import Any

import msgspec
import pyarrow.compute as pc
import pyarrow.dataset as pads
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from fogline_cloud.flows.tables.files import TableFolder
from fogline_cloud.flows.tables.schema import EventOutcome
from fogline_cloud.store.failure import failure_of

NOT_PARSED = frozenset({EventOutcome.DEAD, EventOutcome.SLOW})
_SHOWN = (
    *("topic", "partition", "offset", "ingested", "gateway", "device", "type", "subject", "content_type"),
    *("outcome", "reason", "detail", "parser", "size_bytes", "data"),
)


class Count(msgspec.Struct, frozen=True):
    """Events of one outcome, reason and parser. `device`: one of theirs, as an example."""

    outcome: str
    reason: str
    parser: str
    events: int
    devices: int
    device: str
    first: datetime
    last: datetime


class DeadLetters:
    """The rows of one flow in `events`, those of `outcomes`. The other attributes: None for all."""

    def __init__(
        self,
        folder: TableFolder,
        flow: str,
        outcomes: Iterable[EventOutcome] = NOT_PARSED,
        *,
        since: datetime | None = None,
        reason: str | None = None,
        parser: str | None = None,
        device: str | None = None,
    ) -> None:
        try:
            table = DeltaTable(folder.uri, storage_options=folder.storage)
            self._rows = table.to_pyarrow_dataset(filesystem=folder.for_scans())
        except (DeltaError, OSError) as error:
            raise failure_of(error, f"table {folder.path} cannot be read") from None
        every = [pc.field("flow") == flow, pc.field("outcome").isin(sorted(outcomes))]
        if since is not None:
            every += [pc.field("ingested") >= since, pc.field("day") >= since.date()]
        given = {"reason": reason, "parser": parser, "device": device}
        every += [pc.field(name) == value for name, value in given.items() if value is not None]
        self._filter: pads.Expression = reduce(and_, every)

    def counts(self) -> list[Count]:
        """Count them, the most frequent first."""
        names = ("outcome", "reason", "parser")
        rows = self._rows.to_table([*names, "device", "ingested"], filter=self._filter)
        totals = [("device", "count", pc.CountOptions(mode="all")), ("device", "count_distinct"), ("device", "min")]
        found = rows.group_by(names).aggregate([*totals, ("ingested", "min"), ("ingested", "max")]).to_pylist()
        counts = [
            Count(
                each["outcome"],
                each["reason"] or "",
                each["parser"] or "",
                each["device_count"],
                each["device_count_distinct"],
                each["device_min"] or "",
                each["ingested_min"],
                each["ingested_max"],
            )
            for each in found
        ]
        return sorted(counts, key=lambda each: (-each.events, each.outcome, each.reason, each.parser))

    def newest(self, count: int) -> list[dict[str, Any]]:
        """Return the newest rows with their bodies, oldest first."""
        times = self._rows.to_table(["ingested"], filter=self._filter)["ingested"]  # bodies may be large: only those wanted
        if not len(times):
            return []
        since = times.take(pc.select_k_unstable(times, min(count, len(times)), [("ingested", "descending")]))[-1]
        rows = self._rows.to_table(list(_SHOWN), filter=self._filter & (pc.field("ingested") >= since))
        found: list[dict[str, Any]] = rows.sort_by("ingested").to_pylist()
        return found[-count:]
