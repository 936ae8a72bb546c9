"""docs/reading.md: each block of Python runs as it stands, over the tables of a flow."""

import os
import re
import subprocess
import sys

import pytest

from fogline_cloud.flows.tables.files import TableFolder
from fogline_cloud.flows.tables.readers import readers_of
from fogline_lab.flow_table import FlowTable
from rules.source import ROOT

PAGE = (ROOT / "docs" / "reading.md").read_text("utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def table(folder) -> FlowTable:
    made = FlowTable("readings", TableFolder(str(folder / "tables" / "readings")))
    made.append(10)
    made.append(5)
    made.delete("sequence >= 12")
    return made


def output(block, folder):
    program = [sys.executable, "-c", block]
    done = subprocess.run(program, cwd=folder, capture_output=True, text=True, timeout=60, env=os.environ, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_rows_of_a_day_by_device(table, folder):
    by_pandas, by_duckdb = (output(block, folder) for block in BLOCKS[:2])
    for each in (by_pandas, by_duckdb):
        assert set(re.findall(r"d-\d", each)) == {f"d-{number}" for number in range(5)}


def test_changes_since_a_version_and_the_readers_note(table, folder):
    found = output(BLOCKS[2], folder)
    assert '"insert"' in found
    assert '"delete"' in found
    assert [(each.name, each.version) for each in readers_of(table.folder)] == [("my-report", table.version)]


def test_every_block_is_tried():
    assert len(BLOCKS) == 3
