"""Deletes old days of table `raw`. No Spark is needed."""

from datetime import date, timedelta
from typing import Literal

from deltalake import DeltaTable

from fogline_cloud.flows.files import TableFolder


def expire_raw(folder: TableFolder, days: int | Literal["forever"], today: date) -> list[date]:
    """Delete the days more than `days` before `today` (UTC) from a table `raw`, if there is one. Returns the deleted days.

    One commit removes whole partitions, so no file is read or written, and a running flow is not disturbed. Readers of an
    older version still find the files until the table is vacuumed. With 0 days the flow writes no rows, and none are deleted.
    """
    if days in (0, "forever") or not DeltaTable.is_deltatable(folder.uri, folder.storage):
        return []
    table = DeltaTable(folder.uri, storage_options=folder.storage)
    assert isinstance(days, int)
    first = today - timedelta(days=days)
    old = sorted({day for each in table.partitions() if (day := date.fromisoformat(str(each["day"]))) < first})
    if old:
        table.delete(f"day < '{first.isoformat()}'")
    return old
