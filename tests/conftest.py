"""Fixtures that stand for the real parts. The broker is one for the whole run; each test has a tenant of its own."""

import itertools
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

from coroutines import run_test
from fogline_lab.kafka_broker import KafkaBroker
from fogline_lab.object_store import ObjectStore
from secured_kafka import SecuredKafka

if TYPE_CHECKING:
    from fogline_lab.line.line import Line

CHAOS = Path(__file__).parent / "chaos"

pytest_plugins = ("cpu_time", "faults.plugin", "property_tests", "sharing", "pytester")
_numbers = itertools.count(1)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: too long for `make test`; `make chaos` runs it")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a run in the background: its children would ignore Ctrl-C too
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--chaos", action="store_true", help="the tests in tests/chaos, those marked slow, and all property tests")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("chaos"):
        return

    def is_chaos(item: pytest.Item) -> bool:
        slow = CHAOS in item.path.parents or item.get_closest_marker("slow") is not None
        return slow or hypothesis.is_hypothesis_test(getattr(item, "obj", None))

    config.hook.pytest_deselected(items=[item for item in items if not is_chaos(item)])
    items[:] = [item for item in items if is_chaos(item)]


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine."""
    return run_test(pyfuncitem)


@pytest.fixture(autouse=True)
def _same_process_after() -> Iterator[None]:
    """Fail a test that leaves a signal handler, or a second copy of a module, to the tests after it."""
    signals = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    modules = sys.modules.copy()
    yield
    changed = [each for each, handler in signals.items() if signal.getsignal(each) != handler]
    for each in changed:
        signal.signal(each, signals[each])
    again = [name for name, module in modules.items() if sys.modules.get(name) is not module and name.startswith("fogline")]
    assert not changed, f"this test changed the handler of {changed}: run what sets it in a process of its own"
    assert set(again) <= {"fogline_test_parsers"}, f"this test imported {again} again: do it in a process of its own"


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


@pytest.fixture(scope="session")
def object_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """A real S3 server, shared by all tests: whoever kills it starts one of their own. `tenant` is a folder that is free."""
    with ObjectStore(tmp_path_factory.mktemp("object-store")) as store:
        yield store


@pytest.fixture
def tenant() -> str:
    """A name that no other test uses, so that topics do not collide."""
    return f"t{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder of this test."""
    return tmp_path


@pytest.fixture
def thorough(request: pytest.FixtureRequest) -> bool:
    """Return True in `make chaos`, which looks at all that `make test` looks at samples of."""
    return bool(request.config.getoption("chaos"))


@pytest.fixture
def line(kafka: KafkaBroker, tenant: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> "Line":
    """A tenant on the broker. Its gateways come back soon after a bridge has no shard yet."""
    from fogline_cloud.kafka.clients import KafkaClients  # here: a run of the edge's tests alone imports nothing of the cloud
    from fogline_cloud.settings import CloudSettings, FlowSettings
    from fogline_cloud.shard.topic_admin import create_topics
    from fogline_lab.line.line import Line

    monkeypatch.setattr("fogline_cloud.bridge.gateways.gateways.RETRY_S", 0.2)
    monkeypatch.setattr("fogline_edge.uplink.uplink.REDIRECTED_S", 0.2)
    settings = CloudSettings(
        tenant=tenant, kafka={"bootstrap.servers": kafka.bootstrap}, shards=2, flow=FlowSettings(tables=str(folder / "tables"))
    )
    create_topics(KafkaClients(settings.kafka), settings, 1)
    return Line(tenant, folder, settings)


@pytest.fixture
def memory(folder: Path) -> Iterator[Path]:
    """A folder whose syncs cost nothing, where there is one: for many short-lived files that no power cut is to survive."""
    shared = Path("/dev/shm")
    place = Path(tempfile.mkdtemp(dir=shared if shared.is_dir() else folder))
    yield place
    shutil.rmtree(place)
