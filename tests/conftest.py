"""Fixtures that stand for the real parts. The broker is one for the whole run; each test has a tenant of its own."""

import itertools
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from xdist.scheduler import LoadFileScheduling

from coroutines import run_test
from fogline_lab.kafka_broker import KafkaBroker
from secured_kafka import SecuredKafka

hypothesis.settings.register_profile("same", deadline=None, derandomize=True)  # how long a case takes is the machine's affair
hypothesis.settings.register_profile("other", deadline=None)

pytest_plugins = ("faults.plugin", "pytester")
_numbers = itertools.count(1)


LONG_FIRST = (
    "flows/test_flow.py",
    "chaos/test_ledger.py",
    "chaos/test_takeover.py",
    "chaos/test_power_cut.py",
    "chaos/test_network.py",
    "flows/",
    "chaos/",
    "e2e/",
    "contracts/",
)
"""Files, or folders of them, that take longest: they come first, so that workers side by side end together."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: too long for `make test`; `make chaos` runs it")
    # `make chaos` tries other cases each time; `make test` the same ones, so that a change fails for its own faults only.
    hypothesis.settings.load_profile("other" if config.getoption("chaos") else "same")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--chaos", action="store_true", help="only the tests in tests/chaos and those marked slow")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    def path(item: pytest.Item) -> str:
        return item.path.relative_to(Path(__file__).parent).as_posix()

    def rank(item: pytest.Item) -> int:
        return next((n for n, begin in enumerate(LONG_FIRST) if path(item).startswith(begin)), len(LONG_FIRST))

    items.sort(key=rank)
    if config.getoption("chaos"):
        others = [item for item in items if not path(item).startswith("chaos/") and item.get_closest_marker("slow") is None]
        config.hook.pytest_deselected(items=others)
        left = set(others)
        items[:] = [item for item in items if item not in left]


class ByFile(LoadFileScheduling):
    """Workers side by side take whole files; those that share one Spark session, or the secured broker, are one."""

    def _split_scope(self, nodeid: str) -> str:
        path: str = super()._split_scope(nodeid)
        return "spark" if path.startswith("tests/flows/test_") or "/test_secured_" in path else path


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile:
    config.option.loadscopereorder = False  # by the number of tests, which says nothing of their length
    return ByFile(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine."""
    return run_test(pyfuncitem)


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A real broker, shared by all tests: whoever kills it starts one of their own."""
    with KafkaBroker(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


@pytest.fixture(scope="session")
def secured_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    """A real broker with TLS, users and ACLs, shared by the files `test_secured_*.py`."""
    with SecuredKafka(tmp_path_factory.mktemp("secured")) as made:
        yield made


@pytest.fixture
def tenant() -> str:
    """A name that no other test uses, so that topics do not collide."""
    return f"t{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder of this test."""
    return tmp_path


@pytest.fixture
def memory(folder: Path) -> Iterator[Path]:
    """A folder whose syncs cost nothing, where there is one: for many short-lived files that no power cut is to survive."""
    shared = Path("/dev/shm")
    place = Path(tempfile.mkdtemp(dir=shared if shared.is_dir() else folder))
    yield place
    shutil.rmtree(place)
