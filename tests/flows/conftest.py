"""One Spark session for the whole run, a tenant's topics in a real Kafka, and records as the bridge writes them."""

import importlib
import itertools
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from pyspark.sql import SparkSession

from flows.tenant_flow import SHARDS, Flow
from fogline.events.event import Event, Lane, TimeQuality
from fogline_cloud.flows import parsers
from fogline_cloud.flows.driver.session import spark_session
from fogline_cloud.pipelines.spark_connect import SERVER, make_token
from fogline_cloud.settings import CloudSettings, FlowSettings, StoreSettings
from fogline_lab.http_line import Conditions, HttpLine
from fogline_lab.kafka_broker import KafkaBroker
from fogline_lab.object_store import BUCKET, ObjectStore

TEST_PARSERS = ("endless", "wrong", "again", "deadly", "stuck", "tardy")
PLUGIN = Path(__file__).parent / "plugin"


@pytest.fixture
def make_event() -> Callable[..., Event]:
    """Events of one stream, numbered on; any attribute may be given."""
    sequences = itertools.count(1)

    def make(data: bytes = b'{"t": 21.5}', **given: Any) -> Event:
        sequence = given.get("sequence") or next(sequences)
        usual: dict[str, Any] = {
            "id": f"ID-{sequence}",
            "tenant": "t",
            "device": "d-1",
            "type": "telemetry",
            "subject": "air",
            "recordedtime": "2026-01-02T03:04:05.000006Z",
            "content_type": "application/json",
            "data": data,
            "gateway": "gw-1",
            "stream": "00000000000000aa",
            "sequence": sequence,
            "lane": Lane.TELEMETRY,
            "timequality": TimeQuality.SYNCED,
            "dedup": "strong",
            "adapter": "mqtt",
        }
        return Event(**{**usual, **given})

    return make


@pytest.fixture(scope="session")
def plugin() -> Iterator[None]:
    """The test parsers, installed for this process and for Spark's workers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(PLUGIN))
        patch.setenv("PYTHONPATH", os.pathsep.join([str(PLUGIN), os.environ.get("PYTHONPATH", "")]))
        importlib.invalidate_caches()
        parsers.installed.cache_clear()
        yield
    parsers.installed.cache_clear()
    sys.modules.pop("fogline_test_parsers", None)


@pytest.fixture(scope="session")
def way_to_store(object_store: ObjectStore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpLine]:
    with HttpLine(object_store.port, tmp_path_factory.mktemp("line") / "line.log") as line:
        yield line


@pytest.fixture
def store_line(way_to_store: HttpLine) -> Iterator[HttpLine]:
    """The line between Spark's session and the object store, which has no faults after the test."""
    yield way_to_store
    way_to_store.lose_none()
    way_to_store.delay(0)
    way_to_store.treat(Conditions.KEPT)


@pytest.fixture(scope="session")
def spark(
    plugin: None, object_store: ObjectStore, way_to_store: HttpLine, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    """A session whose tables may be in folders and in the object store."""
    folder = tmp_path_factory.mktemp("spark")
    more = {"spark.driver.memory": "1g", **SERVER}
    make_token()
    flow = FlowSettings(checkpoint=str(folder / "spark"), tables=f"s3a://{BUCKET}/spark", spark=more)
    store = StoreSettings(endpoint=way_to_store.endpoint, key_file=str(object_store.key_file))
    with spark_session(
        CloudSettings(tenant="t", kafka={"bootstrap.servers": "127.0.0.1:1"}, flow=flow, store=store)
    ) as session:
        yield session


@pytest.fixture
def flow(spark: SparkSession, kafka: KafkaBroker, tenant: str, folder: Path) -> Flow:
    settings = CloudSettings(
        tenant=tenant,
        kafka={"bootstrap.servers": kafka.bootstrap},
        shards=SHARDS,
        flow=FlowSettings(
            tables=str(folder / "tables"),
            checkpoint=str(folder / "checkpoint"),
            raw_days=0,
            parse_limit_ms=10_000,
            parsers={f"application/x-{name}": f"test-{name}" for name in TEST_PARSERS},
        ),
    )
    made = Flow(spark, settings)
    made.make_topics()
    return made


@pytest.fixture
def stored_flow(flow: Flow, object_store: ObjectStore, store_line: HttpLine, tenant: str) -> Flow:
    """A flow whose tables and checkpoint are in the object store, behind `store_line`."""
    place = f"s3a://{BUCKET}/{tenant}"
    store = StoreSettings(endpoint=store_line.endpoint, key_file=str(object_store.key_file))
    stored = replace(flow.settings.flow, tables=f"{place}/tables", checkpoint=f"{place}/checkpoint")
    made = Flow(flow.spark, replace(flow.settings, flow=stored, store=store))
    made.check()
    return made
