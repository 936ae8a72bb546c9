"""A table of the flow, to which tests commit as flow, replay, maintenance and users do: by delta-rs, without Spark."""

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, Field, PostCommitHookProperties, WriterProperties
from deltalake.schema import PrimitiveType
from deltalake.transaction import AddAction

from fogline_cloud.flows.tables.batch import File, MicroBatch
from fogline_cloud.flows.tables.delta_log import DeltaLog
from fogline_cloud.flows.tables.files import FileWriter, TableFolder
from fogline_cloud.flows.tables.owner import Owner
from fogline_cloud.flows.tables.schema import MEASURED, TABLES, arrow_schema, in_file

TENANT = "t"
DAY = date(2026, 1, 5)
_OWNER = Owner(TENANT, "main", "run-1", 1)
_HOOK = PostCommitHookProperties(cleanup_expired_logs=False)

RowOf = Callable[[int], dict[str, Any]]
"""Columns of the row with a number, as far as they differ from the usual ones."""


class FlowTable:
    """One table with made rows. Row `n` is the event with sequence `n` of device `d-(n mod 5)`."""

    def __init__(self, name: str, folder: TableFolder, *, changes: bool = True) -> None:
        self.name = name
        self.folder = folder
        self.schema = arrow_schema(in_file(TABLES[name]))
        feed = {"delta.enableChangeDataFeed": "true"} if changes else {}
        measured = {"delta.dataSkippingStatsColumns": ",".join(MEASURED[name])}
        fields = self.schema.append(pa.field("day", pa.date32()))
        DeltaTable.create(folder.uri, fields, mode="overwrite", partition_by=["day"], configuration={**measured, **feed})
        self._log = DeltaLog(name, folder)
        self._log.take_over(_OWNER, {})
        self._batches = 0
        self.count = 0

    def append(self, count: int = 1, day: date = DAY, row: RowOf = lambda _: {}) -> None:
        """Commit the next `count` rows as a micro-batch of the flow."""
        batch = MicroBatch("main", _OWNER.run, self._batches)
        self._batches += 1
        rows = [self._row(number, day, row) for number in range(self.count, self.count + count)]
        self.count += count
        self._log.append(self._files(rows), batch, _OWNER)

    def replace_day(self, row: RowOf, day: date = DAY) -> None:
        """Commit the rows of a day with other values, as a replay does: files are removed, and others added."""
        found = DeltaTable(self.folder.uri).to_pyarrow_table(filters=[("day", "=", day)])
        rows = [self._row(each["offset" if self.name == "raw" else "sequence"], day, row) for each in found.to_pylist()]
        actions = [
            AddAction(each.path, each.size, {"day": each.day}, each.modified_ms, True, each.stats) for each in self._files(rows)
        ]
        table = DeltaTable(self.folder.uri)
        table.create_write_transaction(
            actions, "overwrite", table.schema(), ["day"], partition_filters=[("day", "=", day.isoformat())]
        )

    def delete(self, where: str) -> None:
        """Delete rows, as a user or maintenance does."""
        DeltaTable(self.folder.uri).delete(where, WriterProperties(compression="ZSTD"), post_commithook_properties=_HOOK)

    def update(self, where: str, **values: str) -> None:
        """Update rows, as maintenance does in `events` when it forgets a device. `values`: SQL."""
        DeltaTable(self.folder.uri).update(values, None, where, post_commithook_properties=_HOOK)

    def compact(self) -> None:
        """Join all files of each day."""
        DeltaTable(self.folder.uri).optimize.compact()

    def vacuum(self) -> None:
        """Delete every file that the newest version does not need."""
        DeltaTable(self.folder.uri).vacuum(0, dry_run=False, full=True, enforce_retention_duration=False)

    def add_column(self, name: str) -> None:
        """Add a column, as a user may."""
        DeltaTable(self.folder.uri).alter.add_columns([Field(name, PrimitiveType("string"))])

    def cut_log(self, before: int) -> None:
        """Delete the log's entries before a version, after a checkpoint."""
        DeltaTable(self.folder.uri).create_checkpoint()
        system = self.folder.file_system()
        for version in range(before):
            system.delete_file(f"_delta_log/{version:020}.json")

    @property
    def version(self) -> int:
        """The newest version."""
        found: int = DeltaTable(self.folder.uri).version()
        return found

    def rows(self, columns: Sequence[str]) -> list[tuple[Any, ...]]:
        """Return every row, in order."""
        found = DeltaTable(self.folder.uri).to_pyarrow_table(columns=list(columns)).to_pylist()
        return sorted((tuple(each[name] for name in columns) for each in found), key=repr)

    def _files(self, rows: list[dict[str, Any]]) -> list[File]:
        with FileWriter(self.folder, MEASURED[self.name]) as writer:
            if rows:
                writer.add(pa.RecordBatch.from_pylist(rows, self.schema))
            return writer.close()

    def _row(self, number: int, day: date, row: RowOf) -> dict[str, Any]:
        moment = datetime(day.year, day.month, day.day, tzinfo=UTC) + timedelta(milliseconds=number)
        device = f"d-{number % 5}"
        usual = {"tenant": TENANT, "run": _OWNER.run, "batch": self._batches, "flow": "main", "day": day, "ordinal": 0}
        usual |= dict.fromkeys(("ingested", "recordedtime", "time"), moment)
        usual |= {"device": device, "source": f"/{TENANT}/devices/{device}", "id": f"id-{number}"}
        usual |= {"gateway": "gw", "stream": "00000000000000aa", "sequence": number, "first_sequence": number}
        usual |= {"topic": "hono.telemetry.t", "topic_id": "x", "partition": 0, "offset": number, "outcome": "ok"}
        usual |= {"metric": "temperature", "unit": "Cel", "value": number / 2}
        if self.name == "raw":
            usual["value"] = b"%d" % number
        return {name: value for name, value in {**usual, **row(number)}.items() if name in self.schema.names}
