"""Notes of readers beside a table's log."""

import pytest

from fogline_cloud.flows.tables import readers
from fogline_cloud.flows.tables.change_reader import KEPT, ChangeReader, waiting
from fogline_cloud.flows.tables.files import TableFolder
from fogline_cloud.flows.tables.readers import forget_reader, note_reader, readers_of


@pytest.fixture
def table(folder) -> TableFolder:
    (folder / "readings").mkdir()
    return TableFolder(str(folder / "readings"))


def test_a_reader_is_known_by_the_version_that_it_noted_last(table):
    assert readers_of(table) == []
    for version in (0, 7):
        note_reader(table, "hourly", version)
    note_reader(table, "sink/of müller", 3)

    assert [(each.name, each.version) for each in readers_of(table)] == [("hourly", 7), ("sink/of müller", 3)]


def test_a_reader_that_is_forgotten_is_gone(table):
    note_reader(table, "hourly", 1)
    assert forget_reader(table, "hourly")
    assert readers_of(table) == []
    assert not forget_reader(table, "hourly")


def test_a_note_that_was_cut_off_or_copied_counts_as_none(table, folder):
    note_reader(table, "hourly", 1)
    notes = folder / "readings" / readers.FOLDER
    (notes / "daily.json").write_bytes((notes / "hourly.json").read_bytes())
    (notes / "weekly.json").write_bytes((notes / "hourly.json").read_bytes()[:-5])

    assert [each.name for each in readers_of(table)] == ["hourly"]


def test_nothing_is_kept_for_a_reader_that_did_not_come_back_for_30_days():
    kept_ms = int(KEPT.total_seconds() * 1000)
    away, late = ChangeReader("away", 0, 0), ChangeReader("late", 0, 1)
    assert waiting([away, late], kept_ms) == [late]
