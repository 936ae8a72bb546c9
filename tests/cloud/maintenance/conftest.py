"""Tables with made commits of a flow, without Spark and Kafka."""

from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from fogline_cloud.flows.tables.batch import MicroBatch
from fogline_cloud.flows.tables.delta_log import DeltaLog
from fogline_cloud.flows.tables.files import FileWriter, TableFolder
from fogline_cloud.flows.tables.owner import Owner
from fogline_cloud.flows.tables.schema import EVENTS, MEASURED, RAW, READINGS, arrow_schema, in_file
from fogline_cloud.settings import CloudSettings, FlowSettings, TablesSettings

OWNER = Owner("t", "main", "run-1", 1)
COLUMNS = {"events": EVENTS, "readings": READINGS, "raw": RAW}


class MadeTable:
    """One table, and a flow that appends one small file a batch."""

    def __init__(self, name: str, folder: TableFolder) -> None:
        self.name = name
        self.folder = folder
        schema = arrow_schema(in_file(COLUMNS[name])).append(pa.field("day", pa.date32()))
        measured = {"delta.dataSkippingStatsColumns": ",".join(MEASURED[name])}
        feed = {} if name == "raw" else {"delta.enableChangeDataFeed": "true"}  # as `make_tables` does
        DeltaTable.create(folder.uri, schema, partition_by=["day"], configuration={**measured, **feed})
        self.log = DeltaLog(name, folder)
        self.log.take_over(OWNER, {})
        self.batches = 0

    def append(self, day: date, *devices: str, **columns: Any) -> None:
        """Commit a batch with one event of each device, `d-1` if none is given. `columns`: other values."""
        batch = MicroBatch("main", OWNER.run, self.batches)
        self.batches += 1
        self.log.append(self.files(batch, day, devices or ("d-1",), **columns), batch, OWNER)

    def files(self, batch, day, devices, **columns):
        moment = datetime(day.year, day.month, day.day, 1, tzinfo=UTC)
        same = {"tenant": "t", "run": batch.run, "batch": batch.number, "flow": "main", "ingested": moment}
        rows = [
            {**same, "device": device, "source": f"/t/devices/{device}", "id": "x", "gateway": "gw", "stream": "s"}
            | {"first_sequence": at, "sequence": at, "outcome": "ok", "topic": "raw", "partition": 0, "offset": at}
            | {"recordedtime": moment, "time": moment, "data": b"x", "readings": [{"ordinal": 0}], "ordinal": 0}
            | {"headers": [{"key": "device_id", "value": device.encode()}], "value": b"%d" % at if self.name == "raw" else at}
            | columns
            for at, device in enumerate(devices, batch.number * 100 + 1)
        ]
        with FileWriter(self.folder, MEASURED[self.name]) as writer:
            schema = arrow_schema(in_file(COLUMNS[self.name]))
            known = [{name: row.get(name) for name in schema.names} for row in rows]
            writer.add(pa.RecordBatch.from_pylist(known, schema))
            return writer.close()

    def rows(self) -> list[dict[str, Any]]:
        """Return every row, in the order of sequences."""
        found = DeltaTable(self.folder.uri).to_pyarrow_table().to_pylist()
        return sorted(found, key=lambda row: row["sequence"])

    def sequences(self) -> list[int]:
        """Return the sequence of each row."""
        return [row["sequence"] for row in self.rows()]

    def file_count(self) -> int:
        """Return the number of files of the newest version."""
        return len(DeltaTable(self.folder.uri).file_uris())


@pytest.fixture
def settings(folder) -> CloudSettings:
    return CloudSettings(tenant="t", flow=FlowSettings(tables=str(folder)), tables=TablesSettings())


@pytest.fixture
def make_table(settings) -> Callable[[str], MadeTable]:
    return lambda name="events": MadeTable(name, TableFolder(f"{settings.flow.tables}/{name}"))
