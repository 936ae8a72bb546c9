"""Two compactions of the same files at once."""

from datetime import date

from deltalake import DeltaTable

from fogline_cloud.maintenance.doubled import undo_doubled
from fogline_cloud.maintenance.table import MaintainedTable

MONDAY = date(2026, 1, 5)


def compact(table: DeltaTable) -> None:
    """Compact the version that was loaded, as a process does that began then."""
    table.optimize.compact(partition_filters=[("day", "=", MONDAY.isoformat())])


def test_rows_that_two_compactions_moved_at_once_are_there_once_afterwards(make_table):
    made = make_table("events")
    for _ in range(3):
        made.append(MONDAY)
    before = made.rows()
    one, other = (DeltaTable(made.folder.uri) for _ in range(2))
    compact(one)
    compact(other)
    assert len(made.rows()) == 2 * len(before), "delta-rs refuses this by now: then this module may go"

    assert undo_doubled(MaintainedTable("events", made.folder), -1) == 1
    assert made.rows() == before
    assert undo_doubled(MaintainedTable("events", made.folder), -1) == 0


def test_rows_that_only_the_later_compaction_moved_come_back_to_their_file(make_table):
    made = make_table("events")
    for _ in range(2):
        made.append(MONDAY)
    one = DeltaTable(made.folder.uri)
    made.append(MONDAY)
    before = made.rows()
    other = DeltaTable(made.folder.uri)
    compact(one)
    compact(other)
    assert len(made.rows()) == 5

    assert undo_doubled(MaintainedTable("events", made.folder), -1) == 1
    assert made.rows() == before
    made.append(MONDAY)
    compact(DeltaTable(made.folder.uri))
    assert undo_doubled(MaintainedTable("events", made.folder), -1) == 0
    assert len(made.rows()) == 4


def test_compactions_one_after_the_other_are_left_alone(make_table):
    made = make_table("events")
    for _ in range(2):
        for _ in range(3):
            made.append(MONDAY)
        compact(DeltaTable(made.folder.uri))
    assert undo_doubled(MaintainedTable("events", made.folder), -1) == 0
    assert len(made.rows()) == 6
