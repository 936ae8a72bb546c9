"""Streaming tables that must begin anew because rows of their source were replaced or deleted."""

from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake

from fogline_cloud.flows.tables.files import TableFolder
from fogline_cloud.flows.tables.table_history import COMMITTED_BY
from fogline_cloud.pipelines.changes import SourceChanges, outdated, read_changes
from fogline_cloud.pipelines.graph import Dataset, DatasetKind, DatasetRead, Graph
from fogline_cloud.pipelines.notes import Notes, read_notes, write_notes

GRAPH = Graph(
    (
        Dataset("alarms", DatasetKind.STREAM, (DatasetRead("readings", streaming=True),)),
        Dataset("calls", DatasetKind.STREAM, (DatasetRead("alarms", streaming=True),)),
        Dataset("doors", DatasetKind.STREAM, (DatasetRead("events", streaming=True),)),
        Dataset("hourly", DatasetKind.MATERIALIZED, (DatasetRead("readings"),)),
    )
)
ALL = {"alarms", "calls", "doors", "hourly"}
READ = {"alarms": {"readings": 7}, "calls": {"readings": 7}, "doors": {"events": 3}}


def anew(changes, read=READ, started=ALL):
    return set(outdated(GRAPH, Notes(read=read), changes, started))


def test_nothing_begins_anew_while_rows_are_only_inserted():
    assert anew({"readings": SourceChanges(20, 7), "events": SourceChanges(9, 3)}) == set()


def test_a_replay_refreshes_the_streams_of_its_table_and_those_after_them_and_no_others():
    assert anew({"readings": SourceChanges(20, 7, (12,)), "events": SourceChanges(9, 3)}) == {"alarms", "calls"}


def test_a_replay_before_the_last_run_is_done_with():
    assert anew({"readings": SourceChanges(20, 5, (7,))}) == set()


def test_a_log_that_does_not_go_back_to_the_last_run_refreshes():
    assert anew({"readings": SourceChanges(20, 20)}) == {"alarms", "calls"}


def test_a_table_without_a_note_is_refreshed_unless_it_has_read_nothing_yet():
    assert anew({"events": SourceChanges(9, 9)}, read={}) == {"doors"}
    assert anew({"events": SourceChanges(9, 9)}, read={}, started={"alarms"}) == set()


def test_a_table_that_keeps_its_rows_and_what_streams_from_it_do_not_begin_anew():
    kept = Dataset("alarms", DatasetKind.STREAM, (DatasetRead("readings", streaming=True),), keeps_rows=True)
    graph = Graph((kept, *GRAPH.datasets[1:]))
    changes = {"readings": SourceChanges(20, 7, (12,)), "events": SourceChanges(9, 3, (5,))}
    assert set(outdated(graph, Notes(read=READ), changes, ALL)) == {"doors"}


def test_a_source_that_was_made_again_refreshes():
    assert anew({"events": SourceChanges(1, 1)}) == {"doors"}


@pytest.fixture
def table(folder) -> TableFolder:
    return TableFolder(str(folder / "readings"))


def append(table, *devices, flow=None):
    rows = pa.table({"device": list(devices), "day": [date(2026, 1, 1)] * len(devices)})
    properties = None if flow is None else {"custom_metadata": {COMMITTED_BY: flow}}
    write_deltalake(table.uri, rows, mode="append", commit_properties=properties and CommitProperties(**properties))


def test_deletions_and_updates_are_found_and_appends_and_compactions_are_not(table):
    append(table, "d-1", "d-2")
    append(table, "d-3", flow="main")
    append(table, "d-4")
    assert read_changes(table, 0) == SourceChanges(2, 0)
    DeltaTable(table.uri).optimize.compact()
    assert read_changes(table, 0) == SourceChanges(3, 0)
    DeltaTable(table.uri).update({"device": "'d-9'"}, predicate="device = 'd-1'")
    DeltaTable(table.uri).delete("device = 'd-2'")
    assert read_changes(table, 0) == SourceChanges(5, 0, (4, 5))
    assert read_changes(table, 4) == SourceChanges(5, 4, (5,))
    assert read_changes(table, 5) == SourceChanges(5, 5)


def test_a_log_that_was_cut_off_is_known_from_its_end_alone(table):
    for at in range(4):
        append(table, f"d-{at}")
    DeltaTable(table.uri).create_checkpoint()
    for version in range(3):
        Path(table.path, "_delta_log", f"{version:020}.json").unlink()
    assert read_changes(table, 1) == SourceChanges(3, 3)


def test_a_folder_without_a_table_and_a_file_have_no_changes(folder):
    (folder / "places.csv").touch()
    for each in (folder, folder / "none", folder / "places.csv"):
        assert read_changes(TableFolder(str(each)), 0) is None


def test_notes_that_were_cut_off_count_as_none(folder):
    storage = TableFolder(str(folder))
    assert read_notes(storage) == Notes()
    write_notes(storage, Notes(read=READ, broken={"alarms": {"plausible": 2}}))
    assert read_notes(storage) == Notes(read=READ, broken={"alarms": {"plausible": 2}})
    content = (folder / "fogline.json").read_bytes()
    (folder / "fogline.json").write_bytes(content[:-4])
    assert read_notes(storage) == Notes()
