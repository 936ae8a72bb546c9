"""A flow on a cluster that has nothing in common with the driver but Kafka and an S3 store."""

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from chaos.cluster_world import LIFE_S, ClusterWorld
from flows.deployments import ACME, deploy, parser_folder, reads
from fogline_cloud.cli.main import main
from fogline_cloud.flows.deployed.parser_log import ParserLog
from fogline_cloud.flows.deployed.parser_set import Change
from fogline_cloud.settings import load
from fogline_lab.kafka_broker import KafkaBroker
from fogline_lab.object_store import ObjectStore
from fogline_lab.spark_cluster import SparkCluster
from fogline_lab.supervisor import find_script, kill_child, start_child
from fogline_lab.waiting import until

KILLS_OF_DRIVER = 6
KILLS_OF_EXECUTORS = 14
EVENTS = 500
"""Landed before each kill."""
OLD = """\
import sys
from collections import namedtuple
sys.version_info = namedtuple("version_info", "major minor micro releaselevel serial")(3, 10, *sys.version_info[2:])
"""
"""Makes a Python say that it is 3.10, when it is imported as `sitecustomize`."""


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("environment")
    (folder / "cloud.toml").write_text('tenant = "t"\n[kafka]\n"bootstrap.servers" = "127.0.0.1:1"\n')
    assert main(["flow", "archive", str(folder / "env.zip"), "--config", str(folder / "cloud.toml"), "--json"]) == 0
    return folder / "env.zip"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made


@pytest.fixture
def world(
    folder: Path, tenant: str, kafka: KafkaBroker, object_store: ObjectStore, cluster: SparkCluster, archive: Path
) -> ClusterWorld:
    return ClusterWorld(folder, tenant, kafka.bootstrap, object_store, cluster, archive)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_same_command_line_writes_the_same_tables_on_one_machine_and_on_a_cluster(world):
    world.land(1, 1000)
    parts = {"events": ("sequence", "id", "outcome", "device"), "readings": ("sequence", "id", "ordinal", "metric", "value")}
    for name, master in (("one", "local[2]"), ("many", world.cluster.url)):
        world.run_once(world.config(name, min_partitions=4), master)
    for table, columns in parts.items():
        one, many = (world.rows(name, table, columns) for name in ("one", "many"))
        assert one == many
        assert set(one.values()) == {1}
    assert len(world.rows("many", "events", ("sequence",))) == 1000
    assert len(world.rows("many", "raw", ("topic", "partition", "offset"))) == 1000


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.fault("K20")
async def test_kills_of_executors_and_of_the_driver_lose_and_double_no_event(world):
    config = world.config("killed", min_partitions=4)
    landed = 0

    def decided() -> int:
        return world.rows("killed", "events", ("sequence",)).total()

    async def land() -> None:
        nonlocal landed
        await asyncio.to_thread(world.land, landed + 1, EVENTS)
        landed += EVENTS

    async def until_more_than(before: int) -> None:
        await until(lambda: decided() > before, f"nothing is decided after {before} events", LIFE_S, pause_s=0.5)

    kills = 0
    for life in range(KILLS_OF_DRIVER):
        await land()
        flow = world.flow(config, f"flow-{life}")
        try:
            await start_child(flow, LIFE_S)
            while kills < KILLS_OF_EXECUTORS * (life + 1) // KILLS_OF_DRIVER:
                before = decided()
                await land()
                await until(world.cluster.executors, "the cluster starts no executor", LIFE_S)
                world.cluster.kill_executor(world.cluster.executors()[kills % 2 - 1])
                kills += 1
                await until_more_than(before)
            await land()
            if life % 2:
                await until_more_than(decided())
        finally:
            await kill_child(flow)
    await asyncio.to_thread(world.run_once, config, world.cluster.url)
    expected = range(1, landed + 1)
    assert world.rows("killed", "events", ("sequence",)) == Counter({(each,): 1 for each in expected})
    assert world.rows("killed", "readings", ("sequence",)) == Counter({(each,): 2 for each in expected})
    assert set(world.rows("killed", "raw", ("topic", "partition", "offset")).values()) == {1}
    assert world.rows("killed", "raw", ("topic",)).total() == landed


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.fault("K26")
async def test_running_cluster_takes_a_deployed_parser_and_goes_back_from_a_broken_one(world, tmp_path):
    config = world.config("deployed", min_partitions=4)
    log, landed = ParserLog(load(config)), 0
    one = deploy(log, parser_folder(tmp_path / "one", reads("one"))).digest

    def digests() -> Counter[str | None]:
        return Counter({digest: count for (digest,), count in world.rows("deployed", "events", ("parser_digest",)).items()})

    async def land_until(done: Callable[[], bool], what: str) -> None:
        """Land events until a micro-batch has shown what a parser is: the driver does not look before each one."""

        def landed_and_done() -> bool:
            nonlocal landed
            world.land(landed + 1, 100, content_type=ACME, data=b"5")
            landed += 100
            return done()

        await until(landed_and_done, what, LIFE_S, pause_s=1.0)

    flow = world.flow(config, "flow-deployed")
    try:
        await start_child(flow, LIFE_S)
        await land_until(lambda: digests()[one] > 0, "the executors do not read by the deployed parser")
        deploy(log, parser_folder(tmp_path / "broken", "import no_such_module"))
        await land_until(lambda: log.newest().change is Change.RETURN, "the flow does not go back from a broken parser")
        two = deploy(log, parser_folder(tmp_path / "two", reads("two"))).digest
        await land_until(lambda: digests()[two] > 0, "the executors do not read by the next parser")
        await until(lambda: digests().total() == landed, "not every event is decided", LIFE_S, pause_s=0.5)
    finally:
        await kill_child(flow)
    assert set(digests()) == {one, two}
    assert world.rows("deployed", "events", ("outcome",)) == {("ok",): landed}
    assert set(world.rows("deployed", "events", ("sequence",)).values()) == {1}


def last_line(text: str) -> str:
    return [each for each in text.splitlines() if each.startswith("fogline: ")][-1]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.fault("K21")
def test_executors_without_keys_to_the_store_are_named_before_the_first_batch(world, object_store):
    """The driver has the keys in its environment, which no executor has."""
    config = world.config("no-keys", keys=False)
    keys = {"AWS_ACCESS_KEY_ID": object_store.key_id, "AWS_SECRET_ACCESS_KEY": object_store.secret}
    done = world.run(world.command(config, world.cluster.url, "--once"), keys)
    assert done.returncode == 2, done.stdout
    assert "the executor on " in last_line(done.stderr)
    assert "cannot write to [flow] tables = s3a://" in last_line(done.stderr)
    assert "[store] key_file" in last_line(done.stderr)
    assert not world.rows("no-keys", "events", ("sequence",))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_spark_submit_starts_the_flow_by_our_line_and_refuses_it_without_our_jars(world):
    world.land(1, 100)
    config = world.config("submitted")
    made = world.run(
        [find_script("fogline"), "flow", "submit-options", "--master", world.cluster.url, "--config", config, "--json"]
    )
    line = json.loads(made.stdout)
    application = [*line["application"], "--once"]
    bare = ["--master", world.cluster.url, "--conf", f"spark.pyspark.driver.python={sys.executable}"]
    done = world.run([line["program"], *bare, *application])
    assert done.returncode != 0
    assert (
        "Spark's driver has no jar of Kafka's source: start it by `fogline flow run --master URL`" in done.stdout + done.stderr
    )

    done = world.run([line["program"], *line["options"], *application])
    assert done.returncode == 0, done.stdout + done.stderr
    assert world.rows("submitted", "events", ("sequence",)).total() == 100


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.fault("K21")
def test_executors_with_another_python_are_named_before_the_first_batch(
    folder, tenant, kafka, object_store, archive, tmp_path_factory
):
    old = tmp_path_factory.mktemp("old")
    (old / "sitecustomize.py").write_text(OLD)
    name = f"python3.{sys.version_info.minor}"
    (old / name).write_text(f'#!/bin/sh\nPYTHONPATH={old}:$PYTHONPATH exec {Path(sys.executable).resolve()} "$@"\n')
    (old / name).chmod(0o755)
    with SparkCluster(tmp_path_factory.mktemp("old-cluster"), workers=1, python=old) as cluster:
        world = ClusterWorld(folder, tenant, kafka.bootstrap, object_store, cluster, archive)
        done = world.run(world.command(world.config("old"), cluster.url, "--once"))
    assert done.returncode == 2, done.stdout
    assert f"runs Python 3.10, the driver 3.{sys.version_info.minor}: install {name} there" in last_line(done.stderr)
