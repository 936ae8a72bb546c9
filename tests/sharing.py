"""Tests side by side: a worker takes whole files, and one worker takes all tests that share a costly fixture.

A fixture decides, not a folder: of a file of the flow, only the tests that ask for Spark wait for it.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

COSTLY = ("spark", "secured_kafka")
"""Fixtures of the whole run that one worker makes, the costliest first."""
RULES = "tests/rules/"
"""Tests of this folder share the syntax trees of all files."""
LONG_FIRST = ("chaos/test_ledger.py", "chaos/test_takeover.py", "chaos/test_power_cut.py", "chaos/", "e2e/", "contracts/")
"""Files, or folders of them, that take longest: they come first, so that workers side by side end together."""
TESTS = Path(__file__).parent


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sort the tests. A worker notes which of them share a fixture."""
    ranks: dict[Path, int] = {}

    def rank(item: pytest.Item) -> int:
        if shared_fixture(item) is not None:
            return -1
        if item.path not in ranks:
            path = item.path.relative_to(TESTS).as_posix()
            ranks[item.path] = next((n for n, begin in enumerate(LONG_FIRST) if path.startswith(begin)), len(LONG_FIRST))
        return ranks[item.path]

    items.sort(key=rank)
    if notes := getattr(config, "workerinput", {}).get("shared_fixtures"):
        shared = {item.nodeid: fixture for item in items if (fixture := shared_fixture(item)) is not None}
        with tempfile.NamedTemporaryFile("w", dir=Path(notes).parent, delete=False) as file:
            json.dump(shared, file)
        Path(file.name).rename(notes)


def shared_fixture(item: pytest.Item) -> str | None:
    """Return the costly fixture that a test asks for."""
    return next((name for name in COSTLY if name in getattr(item, "fixturenames", ())), None)


class Sharing(LoadFileScheduling):
    """Gives each worker whole files, and the tests of a costly fixture to one worker. `notes`: what the workers have noted."""

    def __init__(self, config: pytest.Config, log: Any, notes: Path) -> None:
        super().__init__(config, log)
        self._notes = notes
        self._fixtures: dict[str, str] | None = None

    def _split_scope(self, nodeid: str) -> str:
        if self._fixtures is None:
            self._fixtures = json.loads(self._notes.read_text("utf-8"))
        scope: str = super()._split_scope(nodeid)
        return self._fixtures.get(nodeid, RULES if scope.startswith(RULES) else scope)


class Controller:
    """Tells the workers where to note what the scheduler needs."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._notes = Path(self._folder.name) / "shared_fixtures.json"

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput["shared_fixtures"] = str(self._notes)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Sharing:
        config.option.loadscopereorder = False  # by the number of tests, which says nothing of their length
        return Sharing(config, log, self._notes)

    def pytest_unconfigure(self) -> None:
        self._folder.cleanup()


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput") and config.getoption("numprocesses", None):
        config.pluginmanager.register(Controller())
