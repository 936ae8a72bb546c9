"""Bridge, flow, ledger and command line over TLS, each with its own principal and the rights that `topics create` makes."""

import asyncio
import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer
from proton import Message
from proton.reactor import Container
from proton.utils import BlockingConnection
from pyspark.sql import SparkSession

from flows.tenant_flow import Flow
from fogline.commands.command import CommandState
from fogline_cloud.cli.main import main
from fogline_cloud.commands.client.operator import Ask, Operator
from fogline_cloud.flows.driver.source import raw_stream, starting_offsets
from fogline_cloud.flows.start.topic_ids import read_topic_ids
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.connection_settings import read_secrets
from fogline_cloud.settings import CloudSettings, load
from fogline_lab.amqp import within
from fogline_lab.device.command_device import CommandDevice
from fogline_lab.line.line import Line, commandable
from fogline_lab.secure_kafka import ADMIN
from secured_kafka import SecuredKafka

TENANT = f"t{os.getpid()}-secured"
CERTIFIED = "User:CN=flow,OU=operator,O=kafka"
ACLS = ("--acls", "bridge=User:bridge", "flow=User:flow", f"flow={CERTIFIED}", "operator=User:operator")
EVENTS = 20


class Users:
    """The settings files of one tenant's users, and its topics and ACLs."""

    def __init__(self, kafka: SecuredKafka, folder: Path) -> None:
        self.kafka, self.folder = kafka, folder
        self.tables = folder / "tables"
        assert main(["topics", "create", *ACLS, "--config", self.path(ADMIN)]) == 0
        producer = Producer(read_secrets(self.settings("bridge").kafka))
        producer.produce(topics.telemetry(TENANT), b"a record that is no event", partition=0)
        assert producer.flush(60) == 0

    def path(self, user: str, way: Callable[[str], dict[str, str]] | None = None) -> str:
        more = f'[flow]\ntables = "{self.tables}"\ncheckpoint = "{self.folder / "checkpoint"}"'
        kafka = (way or self.kafka.password)(user)
        return str(self.kafka.settings_file(self.folder, user, TENANT, kafka, more))

    def settings(self, user: str, way: Callable[[str], dict[str, str]] | None = None) -> CloudSettings:
        return load(Path(self.path(user, way)))

    def shown(self, *texts: str | bytes) -> list[str]:
        """The users whose secret is in one of the texts."""
        found = [each if isinstance(each, bytes) else each.encode() for each in texts]
        return [user for user, secret in self.kafka.secrets.items() if any(secret.encode() in each for each in found)]


@pytest.fixture(scope="module")
def users(secured_kafka: SecuredKafka, tmp_path_factory: pytest.TempPathFactory) -> Users:
    return Users(secured_kafka, tmp_path_factory.mktemp("users"))


async def use(line: Line) -> None:
    """Run a command, then store events and let another bridge accept them, which reads what the first one wrote."""
    async with (
        commandable(line) as (_, outbox, downlink),
        Operator("127.0.0.1", line.port, line.tenant) as operator,
    ):
        await within(operator.attached(), "the operator cannot attach")
        downlink.reachable("lamp-1", CommandDevice(downlink))
        verdict = await within(operator.request(Ask("lamp-1", "switch", b"{}", durable=True)), "no answer")
        assert verdict.state is CommandState.SUCCEEDED
        await line.drained(outbox)  # so the verdict is in Kafka, and the next bridge does not send the command again
    async with line.bridge(), line.gateway() as outbox:
        await line.put(outbox, *range(2, EVENTS + 1))
        await line.drained(outbox)
        await asyncio.to_thread(consume, line)


def consume(line: Line) -> None:
    """Receive over AMQP what the gateway has sent: the bridge reads it as a member of the client's own group."""
    container = Container()
    container.container_id = "app-1"
    connection = BlockingConnection(f"127.0.0.1:{line.port}", allowed_mechs="ANONYMOUS", timeout=60, container=container)
    try:
        source = connection.create_receiver(f"event/{line.tenant}", credit=1)
        connection.create_sender(f"event/{line.tenant}/lamp-1").send(Message(b"1"), timeout=60)
        assert source.receive(timeout=60).properties["device_id"] == "lamp-1"
        source.accept()
    finally:
        connection.close()


@pytest.mark.slow
def test_every_process_works_with_its_own_rights_and_shows_no_secret(
    users: Users, spark: SparkSession, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    line = Line(TENANT, users.folder, users.settings("bridge"))
    asyncio.run(use(line))
    assert line.landed() == list(range(1, EVENTS + 1))

    flow = Flow(spark, users.settings("flow"))
    flow.check()
    assert sum(batch.events for batch in flow.run()) >= EVENTS
    assert len(flow.rows("readings")) == EVENTS + 1  # with the AMQP client's

    capfd.readouterr()
    main(["ledger", "verify", "--config", users.path("operator")])
    assert "the ledger balances" in capfd.readouterr().out
    for user, compared in (("operator", False), ("bridge", True)):
        assert main(["audit", "verify", "--config", users.path(user)]) == 0
        shown = capfd.readouterr()
        assert ("none is missing" in shown.out, "not compared with the checkpoint" not in shown.err) == (True, compared)
    assert main(["bridge", "check", "--single-node", "--config", users.path("bridge")]) == 0
    assert main(["bridge", "check", "--config", users.path("bridge")]) == 1  # reads the topics' settings
    assert main(["topics", "check", *ACLS, "--config", users.path(ADMIN)]) == 0

    assert not users.shown(caplog.text, *capfd.readouterr())
    assert not users.shown(*command_lines())
    written = [spark_log(spark), *(each for name in ("checkpoint", "tables") for each in (users.folder / name).rglob("*"))]
    assert not users.shown(*(path.read_bytes() for path in written if path.is_file()))


def command_lines() -> Iterator[bytes]:
    """What `ps` shows."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # the process has ended
            yield path.read_bytes()


def spark_log(spark: SparkSession) -> Path:
    options = spark.sparkContext.getConf().get("spark.driver.extraJavaOptions") or ""
    found = re.search(r'-Dfogline\.log="([^"]+)"', options)
    assert found is not None
    return Path(found[1])


@pytest.mark.parametrize("user", ["flow", "operator", "stranger"])
def test_only_the_bridge_may_write_a_raw_topic(users: Users, user: str) -> None:
    failures: list[KafkaError] = []
    producer = Producer(read_secrets(users.settings(user).kafka))
    producer.produce(topics.telemetry(TENANT), b"{}", partition=0, on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(60) == 0
    assert [each.code() for each in failures] == [KafkaError.TOPIC_AUTHORIZATION_FAILED]


@pytest.mark.parametrize("way", ["password", "token", "client_certificate"])
def test_spark_reads_over_each_way_to_log_in_and_shows_no_secret(users: Users, spark: SparkSession, way: str) -> None:
    settings = users.settings("flow", getattr(users.kafka, way))
    stream = raw_stream(spark, settings, starting_offsets(read_topic_ids(settings).partitions, {}), 10)
    spark.sparkContext.setLogLevel("DEBUG")
    try:
        query = stream.writeStream.format("noop").trigger(availableNow=True).start()
        assert query.awaitTermination(60)
    finally:
        spark.sparkContext.setLogLevel("WARN")
    assert sum(each.numInputRows for each in query.recentProgress) > 0
    plans = (stream._jdf.queryExecution().toString(), query._jsq.explainInternal(True), str(query.lastProgress))
    written = "".join([*plans, spark_log(spark).read_text()])
    assert not users.shown(written)
    assert "PRIVATE KEY" not in written
