"""Fixtures that stand for the real parts. The broker is one for the whole run; each test has a tenant of its own."""

import asyncio
import inspect
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from fogline.testing.kafka_broker import KafkaBroker

hypothesis.settings.register_profile("fogline", deadline=None)  # how long a case takes is the machine's affair
hypothesis.settings.load_profile("fogline")

_numbers = itertools.count(1)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine on a loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A real broker, shared by all tests: whoever kills it starts one of their own."""
    with KafkaBroker(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


@pytest.fixture
def tenant() -> str:
    """A name that no other test uses, so that topics do not collide."""
    return f"t{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder of this test."""
    return tmp_path
