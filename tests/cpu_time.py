"""CPU time of each test: of its worker and of all processes that descend from it, shared brokers and Spark included.

The end of a run lists the tests that used the most. `--cpu-report FILE` writes all of them. A test that uses more than
`rules/budget.toml` allows makes the run fail. Set-up of a fixture of the whole run (a broker, Spark) is counted apart.
"""

import json
import os
import time
import tomllib
from collections.abc import Generator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

BUDGET = tomllib.loads((Path(__file__).parent / "rules" / "budget.toml").read_text("utf-8"))
SHORT_S = 0.05
"""Time of a test below which its descendants are not looked at: that costs some milliseconds."""
SHOWN = 10
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Used:
    """Time that a test took, the CPU time that it may use, and whether it failed."""

    wall_s: float
    cpu_s: float
    limit_s: float
    failed: bool = False


def tree_cpu_s(root: int) -> float:
    """Return the CPU time of a process and its descendants, ended ones included (proc(5)), in seconds."""
    children: dict[int, list[int]] = {}
    used: dict[int, int] = {}
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            try:
                fields = (each / "stat").read_bytes().rpartition(b")")[2].split()
            except OSError:
                continue
            children.setdefault(int(fields[1]), []).append(int(each.name))
            used[int(each.name)] = sum(map(int, fields[11:15]))
    total, found = 0, [root]
    while found:
        process = found.pop()
        total += used.get(process, 0)
        found += children.get(process, [])
    return total / _TICKS


def limit_of(item: pytest.Item) -> float:
    """Return the CPU time that a test may use, in seconds."""
    slow = item.config.getoption("chaos") or item.get_closest_marker("slow") is not None
    limit_s: float = BUDGET["slow_test_cpu_s" if slow else "test_cpu_s"]
    return limit_s


class Measurement:
    """Measures the tests of this process. `table`: by node id."""

    def __init__(self) -> None:
        self.table: dict[str, Used] = {}
        self._fixtures_s = 0.0
        self._before_s = tree_cpu_s(os.getpid())

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        began, self._fixtures_s = time.monotonic(), 0.0
        result = yield
        wall_s = time.monotonic() - began
        if wall_s > SHORT_S:
            after_s = tree_cpu_s(os.getpid())
            used_s = after_s - self._before_s - self._fixtures_s
            self.table[item.nodeid] = Used(round(wall_s, 3), round(used_s, 3), limit_of(item))
            self._before_s = after_s
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, Any, Any]:
        if fixturedef.scope != "session":
            return (yield)
        before_s, inner_s = tree_cpu_s(os.getpid()), self._fixtures_s
        try:
            return (yield)
        finally:
            self._fixtures_s = inner_s + max(0.0, tree_cpu_s(os.getpid()) - before_s)


class Worker(Measurement):
    """Sends the table of a worker to the controller."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        session.config.workeroutput["cpu_time"] = {name: asdict(used) for name, used in self.table.items()}  # type: ignore[attr-defined]


class Report:
    """Collects the tables of all workers, and prints, writes and judges them."""

    def __init__(self, config: pytest.Config, own: dict[str, Used]) -> None:
        self._config = config
        self._table = own
        self._failed: set[str] = set()

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        sent = getattr(node, "workeroutput", {}).get("cpu_time", {})
        self._table.update({name: Used(**used) for name, used in sent.items()})

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed.add(report.nodeid)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        for name in self._failed:
            self._table.setdefault(name, Used(0.0, 0.0, BUDGET["test_cpu_s"])).failed = True
        if path := self._config.getoption("cpu_report"):
            Path(path).write_text(json.dumps({name: asdict(used) for name, used in self._table.items()}), "utf-8")
        if self._over() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _over(self) -> list[tuple[str, Used]]:
        return [(name, used) for name, used in self._table.items() if used.cpu_s > used.limit_s]

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        most = sorted(self._table.items(), key=lambda each: -each[1].cpu_s)[:SHOWN]
        if len(self._table) >= SHOWN:
            terminalreporter.section("the tests that used the most CPU time")
            for name, used in most:
                terminalreporter.line(f"{used.cpu_s:6.1f} s CPU {used.wall_s:6.1f} s  {name}")
        for name, used in self._over():
            terminalreporter.line(f"over budget: {used.cpu_s:.1f} s of CPU time (tests/rules/budget.toml): {name}")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cpu-report", metavar="FILE", help="write the CPU time of each test to a JSON file")


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(Worker())
        return
    measurement = Measurement()
    if not config.getoption("numprocesses", None):
        config.pluginmanager.register(measurement)
    config.pluginmanager.register(Report(config, measurement.table))
