"""Closed days of a table sorted by device: a query for one device then reads few of their files.

The log of the table keeps, for each day, how many rows were sorted. A day with another number of rows is sorted again.
"""

import time
from datetime import date

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, Transaction

from fogline_cloud.maintenance.plan import SORTED_BYTES
from fogline_cloud.maintenance.table import HOOK, WRITER, MaintainedTable

SORT_BYTES = 256 << 20
"""Memory for the rows that are sorted at once. Further ones go to the folder of temporary files."""


def unsorted_days(table: MaintainedTable, before: date) -> list[tuple[date, int]]:
    """Return the days before this one whose rows are not sorted, with the number of their files."""
    counts = [day for day, _ in table.files() if day < before]
    return [
        (day, counts.count(day))
        for day in sorted({*counts})
        if _rows(table, day) != table.table.transaction_version(_application(day))
    ]


def sort_day(table: MaintainedTable, day: date) -> int:
    """Sort the rows of one day by device. No row changes. Returns the number of files that the day has now."""

    def step() -> int:
        rows = _rows(table, day)
        table.table.optimize.z_order(
            ["device"],
            partition_filters=[("day", "=", day.isoformat())],
            target_size=SORTED_BYTES,
            max_concurrent_tasks=1,
            max_spill_size=SORT_BYTES,
            writer_properties=WRITER,
            post_commithook_properties=HOOK,
        )
        return rows

    rows = table.retried(step)
    table.retried(lambda: _note(table, day, rows))  # a commit of its own: delta-rs drops a transaction of `z_order`
    return sum(each == day for each, _ in table.files())


def _note(table: MaintainedTable, day: date, rows: int) -> None:
    noted = Transaction(_application(day), rows, int(time.time() * 1000))
    table.table.create_write_transaction(
        [],
        mode="append",
        schema=table.table.schema(),
        partition_by=["day"],
        commit_properties=CommitProperties(app_transactions=[noted]),
        post_commithook_properties=HOOK,
    )


def _rows(table: MaintainedTable, day: date) -> int:
    found = pa.table(table.table.get_add_actions(flatten=True))
    of_day = found.filter(pc.equal(found.column("partition.day"), pa.scalar(day)))
    return int(pc.sum(of_day.column("num_records")).as_py() or 0)


def _application(day: date) -> str:
    return f"fogline/sorted/{day.isoformat()}"
