"""Snapshots: the first start of a sink, and a sink that cannot follow the log any more. On each database."""

import json
from contextlib import suppress
from pathlib import Path

import pytest

from fogline.errors import Misconfigured
from fogline_lab.flow_table import FlowTable


def assert_equal(world, table):
    assert world.rows() == table.rows(world.columns)


def test_a_table_is_copied_file_by_file_and_an_interrupted_copy_goes_on(world, interrupted):
    table = world.made()
    for _ in range(4):
        table.append(3)
    with interrupted("set_position", 3), suppress(KeyboardInterrupt):
        world.fill(table, transaction_rows=3)
    assert len(world.rows()) == 6
    table.append(1)

    third, fourth, append = world.fill(table, transaction_rows=3)
    assert [(each.files, each.all_files) for each in (third, fourth)] == [(3, 4), (4, 4)]
    assert append.all_files == 0
    assert_equal(world, table)


@pytest.mark.fault("K23")
def test_a_sink_whose_versions_are_gone_copies_anew(world, caplog):
    caplog.set_level("INFO")
    table = world.made()
    table.append(2)
    world.fill(table)
    table.delete("sequence = 0")
    for _ in range(3):
        table.append(1)
    table.cut_log(before=table.version)

    world.fill(table)
    assert_equal(world, table)
    assert (
        f"sink lab: copying version {table.version} of the table: the log of the table does not have version 3" in caplog.text
    )


@pytest.mark.fault("K23")
def test_a_sink_whose_files_are_gone_copies_anew(world, caplog):
    caplog.set_level("INFO")
    table = world.made()
    table.append(2)
    world.fill(table)
    table.append(2)
    table.replace_day(lambda _: {"value": 3.0})
    table.vacuum()

    world.fill(table)
    assert_equal(world, table)
    assert "of the table was deleted" in caplog.text


def test_a_file_that_is_gone_in_the_middle_leaves_no_part_of_a_version(world):
    """DuckDB's driver takes an error of the rows for their end."""
    table = world.made()
    table.append(2)
    sink = world.sink(table)
    world.fill(table, sink=sink)
    before = world.rows()
    table.append(2)
    table.append(2)
    newest = max(Path(table.folder.path).glob("day=*/*.parquet"), key=lambda each: each.stat().st_mtime_ns)
    newest.unlink()

    with pytest.raises(Misconfigured, match="fogline ledger verify"):
        world.fill(table, sink=sink)
    assert world.rows() in (before, []), "a copy empties the table first"


@pytest.mark.fault("K23")
def test_a_table_that_was_made_again_is_copied_anew(world):
    table = world.made()
    table.append(3)
    sink = world.sink(table)
    world.fill(table, sink=sink)
    for each in sorted(Path(table.folder.path).rglob("*"), reverse=True):
        each.rmdir() if each.is_dir() else each.unlink()
    again = FlowTable("readings", table.folder)
    again.append(1, row=lambda _: {"id": "new"})

    world.fill(again, sink=sink)
    assert world.rows(("id",)) == [("new",)]


@pytest.mark.fault("K23")
def test_a_version_that_was_overwritten_after_it_was_read_is_copied_anew(world):
    """A store without put-if-absent lets another program do that, and the flow then repeats its commit."""
    table = world.made()
    table.append(2)
    sink = world.sink(table)
    world.fill(table, sink=sink)
    entry = Path(table.folder.path, "_delta_log", f"{table.version:020}.json")
    lines = [json.loads(line) for line in entry.read_text().splitlines()]
    entry.write_text("\n".join(json.dumps(line) for line in lines if "add" not in line) + "\n")

    world.fill(table, sink=sink)
    assert world.rows() == []


def test_the_target_that_a_user_dropped_is_copied_anew(world):
    table = world.made()
    table.append(3)
    world.fill(table)
    world.sql("DROP TABLE readings")
    table.append(1)
    world.fill(table)
    assert_equal(world, table)


def test_a_copy_can_be_asked_for(world):
    table = world.made()
    table.append(3)
    world.fill(table)
    world.sql("UPDATE readings SET value = 99")
    sink = world.sink(table, copy_again=True)
    world.fill(table, sink=sink)
    assert_equal(world, table)
    assert world.fill(table, sink=sink) == []
