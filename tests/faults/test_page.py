"""docs/proofs/faults.md is what catalogue, marks and outcomes say, and no row that has to be covered is left open."""

import pytest

from faults import page
from faults.page import Outcome, Row

MAY_WAIT = ()
ROWS = [row for rows in page.catalogue().values() for row in rows]
MARKED = page.marks()


def provoking(row: Row) -> list[str]:
    return [name for name, rows in MARKED.items() if row.id in rows]


def test_page_agrees_with_its_sources():
    assert page.PAGE.read_text() == page.render(page.catalogue(), MARKED, page.outcomes()), "run: make faults"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_a_row_has_a_test_that_passed_or_says_why_not(row):
    found = page.outcomes()
    assert bool(provoking(row)) != bool(row.not_yet)
    assert provoking(row) or row.id.startswith(MAY_WAIT)
    assert [name for name in provoking(row) if str(found.get(name, "not run")) == "not run"] == [], "run: make faults"
    assert [name for name in provoking(row) if found[name].failed or not found[name].passed] == []


def test_the_catalogue_has_every_row_once():
    counts = {"C": 15, "T": 6, "N": 11, "D": 12, "R": 3, "K": 9, "X": 14, "S": 9}
    wanted = {f"{letter}{n}" for letter, count in counts.items() for n in range(1, count + 1)} | {
        "C21",
        "D14",
        "D15",
        "K12",
        "K14",
        "K20",
        "K21",
        "K22",
        "K23",
        "K24",
        "K25",
        "K26",
        "K27",
        "K28",
        "K29",
        "K30",
        "K31",
        "S11",
        "S12",
        "S13",
    }
    assert {row.id for row in ROWS} == wanted
    assert len(ROWS) == len(wanted)


def test_outcome_lists_its_cases():
    assert str(Outcome("2026-01-01", passed=1)) == "passed"
    assert str(Outcome("2026-01-01", passed=5, failed=1)) == "5 passed, 1 failed"


def test_a_row_without_tests_says_why_and_one_that_did_not_run_says_so():
    rows = [Row("A1", "fire", "put out"), Row("A2", "flood", "dried", "no water here")]
    text = page.render({"Things": rows}, {"tests/test_a.py::test_fire": ("A1",)}, {})
    assert "| A1 | fire | put out | [test_fire](../../tests/test_a.py) | not run |" in text
    assert "| A2 | flood | dried | not yet | no water here |" in text


PROGRAM = """
import pytest

@pytest.mark.fault({})
def test_it():
    print("so it was")
"""


@pytest.fixture
def elsewhere(pytester, monkeypatch):
    """The plugin in a project of its own."""
    for name in ("PAGE", "OUTCOMES"):
        monkeypatch.setattr(page, name, pytester.path / name)
    monkeypatch.setattr(page, "TESTS", pytester.mkdir("tests"))
    page.OUTCOMES.write_text("{}")
    return lambda rows: (page.TESTS / "test_it.py").write_text(PROGRAM.format(rows))


def run(pytester, *arguments):
    return pytester.runpytest_inprocess("-p", "faults.plugin", "-p", "no:cacheprovider", "tests", *arguments)


def test_run_writes_outcomes_and_page(pytester, elsewhere):
    elsewhere('"C7", "N2"')
    assert run(pytester, "--faults").ret == 0
    (found,) = page.outcomes().items()
    assert (found[0], found[1].passed, found[1].said) == ("tests/test_it.py::test_it", 1, ["so it was"])
    assert page.PAGE.read_text() == page.render(page.catalogue(), page.marks(), page.outcomes())
    assert page.PAGE.read_text().count("[test_it](../../tests/test_it.py) | passed |") == 2


@pytest.mark.parametrize("rows", ['"C77"', '"C7", "Z1"', ""])
def test_unknown_fault_id_is_an_error(pytester, elsewhere, rows):
    elsewhere(rows)
    result = run(pytester)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*names no row of catalogue.toml*"])
