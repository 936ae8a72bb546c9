"""docs/sinks.md: its settings are valid, its DDL is that of the sink, its lists are the code's."""

import re

from fogline_cloud.flows.tables.schema import TABLES
from fogline_cloud.settings import load
from fogline_cloud.sinks.columns import IDENTITY
from fogline_cloud.sinks.dialects import DIALECTS, create_positions
from fogline_cloud.sinks.place import Kind, place_of
from rules.source import ROOT

PAGE = (ROOT / "docs" / "sinks.md").read_text("utf-8")


def block(language: str) -> str:
    return re.search(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)[1]


def test_the_settings_of_the_page_are_valid(folder):
    config = folder / "cloud.toml"
    config.write_text('tenant = "t"\n' + block("toml"), "utf-8")
    assert [place_of(each.url).kind for each in load(config, kafka=False).sinks.values()] == [Kind.POSTGRESQL, Kind.DUCKDB]


def test_the_table_of_positions_is_the_one_that_the_sink_makes():
    assert " ".join(block("sql").split()).rstrip(";") == create_positions()


def test_the_page_names_the_columns_that_tell_rows_apart():
    text = " ".join(PAGE.split())
    for table in ("readings", "events"):
        assert f"{', '.join(f'`{each}`' for each in IDENTITY[table])} of `{table}`" in text


def test_the_page_has_the_type_of_each_column_in_each_database():
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("| ")]
    named = {row[0]: row[1:] for row in rows if len(row) == 4}
    for kind in {column.type for columns in TABLES.values() for column in columns}:
        kinds = next((name for name in named if kind in name.split(", ")), "lists, maps, structs")
        for cell, dialect in zip(named[kinds], DIALECTS.values(), strict=True):
            each = cell.split(", ")
            found = each[kinds.split(", ").index(kind)] if kinds == "INT, BIGINT" else cell
            assert found.startswith(dialect.types.get(kind, dialect.nested)), (kind, cell)
