"""`docs/proofs/mqtt.md` names tests that exist, and exceptions that it explains."""

import re
from pathlib import Path

HERE = Path(__file__).parent
DOCUMENT = (HERE.parents[2] / "docs" / "proofs" / "mqtt.md").read_text("utf-8")
ROWS = [line for line in DOCUMENT.splitlines() if re.match(r"\| (MQTT-|3\.1\.1 )", line)]


def test_every_test_that_is_named_exists():
    there = {name for path in HERE.glob("test_*.py") for name in re.findall(r"def (test_\w+)", path.read_text("utf-8"))}
    named = set(re.findall(r"`(test_\w+)`", DOCUMENT))
    assert named - there == set()


def test_every_statement_has_a_test_or_an_exception_that_is_explained():
    explained = set(re.findall(r"^\| ([a-z-]+) \| [A-Z]", DOCUMENT, re.MULTILINE))
    used = set(re.findall(r"exception: ([a-z-]+)", DOCUMENT))
    assert used == explained
    assert len(ROWS) > 100
    assert [row for row in ROWS if "`test_" not in row.split("|")[3] and "exception: " not in row.split("|")[3]] == []


def test_no_statement_stands_there_twice_with_the_same_words():
    assert len({tuple(row.split("|")[1:3]) for row in ROWS}) == len(ROWS)
