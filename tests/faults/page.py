"""Renders `docs/proofs/faults.md` from the catalogue, the marks on the tests, and the tests' outcomes. Without pytest."""

import ast
import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "proofs" / "faults.md"
CATALOGUE = TESTS / "faults" / "catalogue.toml"
OUTCOMES = TESTS / "faults" / "outcomes.json"

HEAD = """\
# Faults that Fogline survives

Each row is a fault that tests provoke, and the right behaviour. The tests compare four sets of ids: events that were
acknowledged to devices, events in the outbox, records that `read_committed` consumers read from Kafka, and rows of the tables.
No event is lost, duplicated or invented, and no sequence is missing without a gap record.

`make faults` runs the tests named here and writes this page; nothing in it is written by hand. `make test` fails if it
differs from the marks on the tests and their last outcomes.
"""


@dataclass(frozen=True)
class Row:
    """One fault. `not_yet`: why no test provokes it, empty where one does."""

    id: str
    fault: str
    right: str
    not_yet: str = ""


@dataclass
class Outcome:
    """Outcome of a test's last run: its cases, and its printed lines."""

    day: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    said: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        counts = {"passed": self.passed, "failed": self.failed, "skipped": self.skipped}
        found = [f"{count} {what}" for what, count in counts.items() if count]
        return ", ".join(found) if self.passed + self.failed + self.skipped > 1 else found[0].removeprefix("1 ")


Marks = dict[str, tuple[str, ...]]
"""The rows that each test provokes, by the test's node id without its parameters."""


def catalogue() -> dict[str, list[Row]]:
    """The rows of each chapter."""
    chapters = tomllib.loads(CATALOGUE.read_text())["chapter"]
    return {each.pop("title"): [Row(id, **row) for id, row in each.items()] for each in chapters}  # noqa: A001 - as in the file


def outcomes() -> dict[str, Outcome]:
    """Read the recorded outcomes."""
    return {name: Outcome(**found) for name, found in json.loads(OUTCOMES.read_text()).items()}


def marks() -> Marks:
    """Read from the source, so that it is all of them, whatever was asked to run. A mark is a decorator of its test."""
    found: Marks = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        source = path.read_text()
        if "mark.fault(" in source:
            where = path.relative_to(TESTS.parent).as_posix()
            found |= {f"{where}::{name}": rows for name, rows in _marked(ast.parse(source))}
    return found


def _marked(module: ast.Module) -> Iterator[tuple[str, tuple[str, ...]]]:
    for each in module.body:
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            calls = [call for call in each.decorator_list if isinstance(call, ast.Call)]
            given = [call.args for call in calls if ast.unparse(call.func) == "pytest.mark.fault"]
            if given:
                yield each.name, tuple(ast.literal_eval(row) for arguments in given for row in arguments)


def write(found: Mapping[str, Outcome]) -> None:
    """Write down what came out, and the page. Tests that did not run keep what is known of them; tests that went are gone."""
    marked = marks()
    known = {**outcomes(), **found}
    kept = {name: known[name] for name in sorted(marked) if name in known}
    OUTCOMES.write_text(json.dumps({name: asdict(each) for name, each in kept.items()}, indent=1, ensure_ascii=False) + "\n")
    PAGE.write_text(render(catalogue(), marked, kept))


def render(chapters: Mapping[str, list[Row]], marked: Marks, found: Mapping[str, Outcome]) -> str:
    """The page."""
    parts = [HEAD]
    for title, rows in chapters.items():
        parts += [f"## {title}\n", "| # | fault | right behaviour | test | outcome |\n|---|---|---|---|---|"]
        parts[-1] += "".join(f"\n{_line(row, marked, found)}" for row in rows) + "\n"
    said = {name: each.said for name, each in found.items() if each.said and name in marked}
    parts.append("## Figures that the tests print\n")
    parts += [
        f"{_link(name)} ({found[name].day}):\n\n" + "".join(f"- {line}\n" for line in lines) for name, lines in said.items()
    ]
    return "\n".join(parts)


def _line(row: Row, marked: Marks, found: Mapping[str, Outcome]) -> str:
    tests = [name for name, rows in marked.items() if row.id in rows]
    links = "<br>".join(_link(name) for name in tests) or "not yet"
    came = "<br>".join(str(found.get(name, "not run")) for name in tests) or row.not_yet
    return f"| {row.id} | {row.fault} | {row.right} | {links} | {came} |"


def _link(name: str) -> str:
    path, _, function = name.partition("::")
    return f"[{function}](../../{path})"
