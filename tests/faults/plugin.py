"""The mark `fault`: `@pytest.mark.fault("C1")` on a test says which rows of the catalogue it provokes.

What such tests print is shown at the end of each run. With `--faults` only they run, and what they come to is written down,
with the page `docs/proofs/faults.md`.
"""

from datetime import UTC, datetime

import pytest

from faults import page

WORST = ("passed", "skipped", "failed")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--faults", action="store_true", help="run the tests of faults only, and write docs/proofs/faults.md")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "fault(*rows): what it provokes, by the rows of tests/faults/catalogue.toml")
    if config.option.faults:
        config.option.markexpr = "fault"
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(writes=config.option.faults))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    known, marked = {row.id for rows in page.catalogue().values() for row in rows}, page.marks()
    for item in items:
        for mark in item.iter_markers("fault"):
            if not mark.args or not known.issuperset(mark.args):
                raise pytest.UsageError(f"{item.nodeid}: fault{mark.args} names no row of {page.CATALOGUE.name}")
            if mark.args != marked.get(item.nodeid.partition("[")[0]):
                raise pytest.UsageError(
                    f"{item.nodeid}: fault{mark.args} has to be a decorator of its function, and the only one"
                )


class Recorder:
    """Follows the run. `writes`: write down what came out of it."""

    def __init__(self, *, writes: bool) -> None:
        self._writes = writes
        self._marked = page.marks()
        self._cases: dict[str, str] = {}
        self._said: dict[str, list[str]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = report.nodeid.partition("[")[0]
        if name not in self._marked:
            return
        former = self._cases.get(report.nodeid, WORST[0])
        self._cases[report.nodeid] = max(former, report.outcome, key=WORST.index)
        if report.when == "call":
            self._said.setdefault(name, []).extend(line.strip() for line in report.capstdout.splitlines() if line.strip())

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the measurements of the tests of faults."""
        lines = [(", ".join(self._marked[name]), line) for name, said in self._said.items() for line in said]
        if lines:
            terminalreporter.section("what the tests of faults said")
            for rows, line in sorted(lines):
                terminalreporter.line(f"{rows}: {line}")

    def pytest_sessionfinish(self) -> None:
        if not self._writes:
            return
        day = datetime.now(UTC).date().isoformat()
        found: dict[str, page.Outcome] = {}
        for case, what in self._cases.items():
            name = case.partition("[")[0]
            outcome = found.setdefault(name, page.Outcome(day, said=sorted(self._said.get(name, []))))
            setattr(outcome, what, getattr(outcome, what) + 1)
        page.write(found)
