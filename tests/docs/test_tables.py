"""The sample rows of docs/tables.md have columns of the schema, and are what the flow's parser makes of the sample records."""

import json
import re

import pytest

from fogline_cloud.cli.main import main
from fogline_cloud.flows.tables.schema import TABLES, names
from rules.source import ROOT

SECTION = (ROOT / "docs" / "tables.md").read_text("utf-8").partition("## Sample rows\n")[2].partition("\n## ")[0]
Row = dict[str, str]


def rows(table: str) -> list[Row]:
    """Return the sample rows of a table, by column."""
    (text,) = re.findall(rf"^`{table}`:\n\n((?:\|.*\n)+)", SECTION, re.MULTILINE)
    head, _, *lines = ([cell.strip(" `") for cell in line.strip("|").split("|")] for line in text.splitlines())
    return [dict(zip(head, line, strict=True)) for line in lines]


@pytest.mark.parametrize("table", TABLES)
def test_sample_rows_have_columns_of_the_schema(table):
    assert rows(table)
    assert set(rows(table)[0]) <= set(names(TABLES[table]))


def test_sample_rows_of_one_record_have_its_place_and_its_event():
    place = ("topic", "partition", "offset")
    assert [[row[each] for each in place] for row in rows("raw")] == [[row[each] for each in place] for row in rows("events")]
    assert {(row["source"], row["id"]) for row in rows("readings")} <= {(row["source"], row["id"]) for row in rows("events")}
    kept = [
        row["value"] if row["outcome"] == "dead" else ""
        for row in [a | b for a, b in zip(rows("raw"), rows("events"), strict=True)]
    ]
    assert [row["data"] for row in rows("events")] == kept


def test_the_parser_makes_the_sample_readings_of_the_sample_records(folder, capsys):
    samples = [{"topic": "telemetry", "content_type": "application/json", "body": row["value"]} for row in rows("raw")]
    (folder / "events.jsonl").write_text("".join(json.dumps(each) + "\n" for each in samples))
    assert main(["parser", "test", "json", "--events", str(folder / "events.jsonl"), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)["events"]
    assert [(each["outcome"], each["reason"] or "") for each in found] == [
        (row["outcome"], row["reason"]) for row in rows("events")
    ]
    readings = [each for event in found for each in event["readings"]]
    assert [(each["metric"], each["value"] or "", each["text"] or "") for each in readings] == [
        (row["metric"], float(row["value"]) if row["value"] else "", row["text"]) for row in rows("readings")
    ]
