"""A table of the flow, to which tests commit as flow, replay, maintenance and users do: by delta-rs, without Spark."""

from collections.abc import Callable, Sequence
from contextlib import suppress
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
        storage = folder.storage or None
        DeltaTable.create(
            folder.uri, fields, "overwrite", partition_by=["day"], configuration={**measured, **feed}, storage_options=storage
        )
        self._log = DeltaLog(name, folder)
        self._log.take_over(_OWNER, {})
        self._batches = 0
        self.count = 0

    def append(self, count: int = 1, day: date = DAY, row: RowOf = lambda _: {}) -> None:
        """Commit the next `count` rows as a micro-batch of the flow."""
        rows = [self._row(number, day, row) for number in range(self.count, self.count + count)]
        self.count += count
        self.append_rows(pa.RecordBatch.from_pylist(rows, self.schema))

    def append_rows(self, rows: pa.RecordBatch) -> None:
        """Commit rows, which have the columns of `schema`, as a micro-batch of the flow."""
        batch = MicroBatch("main", _OWNER.run, self._batches)
        self._batches += 1
        self._log.append(_written(self, rows), batch, _OWNER)

    def replace_day(self, row: RowOf, day: date = DAY) -> None:
        """Commit the rows of a day with other values, as a replay does: files are removed, and others added."""
        found = self._open().to_pyarrow_table(filters=[("day", "=", day)])
        rows = [self._row(each["offset" if self.name == "raw" else "sequence"], day, row) for each in found.to_pylist()]
        files = _written(self, pa.RecordBatch.from_pylist(rows, self.schema))
        table = self._open()
        table.create_write_transaction(
            _actions(files), "overwrite", table.schema(), ["day"], partition_filters=[("day", "=", day.isoformat())]
        )

    def replace_rows(self) -> None:
        """Commit every row again in other files, as a replay that changes all of them does."""
        table = self._open()
        rows = table.to_pyarrow_table(columns=self.schema.names).cast(self.schema)
        files = [file for batch in rows.to_batches() for file in _written(self, batch)]
        table.create_write_transaction(_actions(files), "overwrite", table.schema(), ["day"])

    def delete(self, where: str) -> None:
        """Delete rows, as a user or maintenance does."""
        self._open().delete(where, WriterProperties(compression="ZSTD"), post_commithook_properties=_HOOK)

    def update(self, where: str, **values: str) -> None:
        """Update rows, as maintenance does in `events` when it forgets a device. `values`: SQL."""
        self._open().update(values, None, where, post_commithook_properties=_HOOK)

    def compact(self) -> None:
        """Join all files of each day."""
        self._open().optimize.compact()

    def vacuum(self) -> None:
        """Delete every file that the newest version does not need."""
        self._open().vacuum(0, dry_run=False, full=True, enforce_retention_duration=False)

    def add_column(self, name: str) -> None:
        """Add a column, as a user may."""
        self._open().alter.add_columns([Field(name, PrimitiveType("string"))])

    def cut_log(self, before: int) -> None:
        """Delete the log's entries before a version, after a checkpoint."""
        self._open().create_checkpoint()
        system = self.folder.file_system()
        for version in range(before):
            with suppress(FileNotFoundError):
                system.delete_file(f"_delta_log/{version:020}.json")

    @property
    def version(self) -> int:
        """The newest version."""
        found: int = self._open().version()
        return found

    def rows(self, columns: Sequence[str]) -> list[tuple[Any, ...]]:
        """Return every row, in order."""
        found = self._open().to_pyarrow_table(columns=list(columns)).to_pylist()
        return sorted((tuple(each[name] for name in columns) for each in found), key=repr)

    def _open(self) -> DeltaTable:
        return DeltaTable(self.folder.uri, storage_options=self.folder.storage)

    def _row(self, number: int, day: date, row: RowOf) -> dict[str, Any]:
        found = usual_row(number, day, self._batches)
        found |= {"value": b"%d" % number} if self.name == "raw" else {}
        return {name: value for name, value in {**found, **row(number)}.items() if name in self.schema.names}


def usual_row(number: int, day: date = DAY, batch: int = 0) -> dict[str, Any]:
    """Return the columns of the row with this number, of any table."""
    moment = datetime(day.year, day.month, day.day, tzinfo=UTC) + timedelta(milliseconds=number)
    device = f"d-{number % 5}"
    usual = {"tenant": TENANT, "run": _OWNER.run, "batch": batch, "flow": "main", "day": day, "ordinal": 0}
    usual |= dict.fromkeys(("ingested", "recordedtime", "time"), moment)
    usual |= {"device": device, "source": f"/{TENANT}/devices/{device}", "id": f"id-{number}"}
    usual |= {"gateway": "gw", "stream": "00000000000000aa", "sequence": number, "first_sequence": number}
    usual |= {"topic": "hono.telemetry.t", "topic_id": "x", "partition": 0, "offset": number, "outcome": "ok"}
    return usual | {"metric": "temperature", "unit": "Cel", "value": number / 2}


def _written(table: FlowTable, rows: pa.RecordBatch) -> list[File]:
    """Write rows to files that no commit names yet."""
    with FileWriter(table.folder, MEASURED[table.name]) as writer:
        writer.add(rows)
        return writer.close()


def _actions(files: Sequence[File]) -> list[AddAction]:
    return [AddAction(each.path, each.size, {"day": each.day}, each.modified_ms, True, each.stats) for each in files]
