"""K1: Kafka comes back and has forgotten markers of a transaction that it had decided to commit."""

import time
from functools import partial

import pytest

from chaos.landed_events import landed, provided
from chaos.raw_kafka import RawKafka, Record
from fogline.errors import Unreachable
from fogline.events.codec import Batch
from fogline.events.event import Lane
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.committed_records import read_committed
from fogline_cloud.kafka.hanging_transactions import find_hanging
from fogline_cloud.kafka.records import record_of
from fogline_cloud.shard.checkpoint import Layout, ShardOwner, StreamState, stream_entry
from fogline_cloud.shard.producer import ShardProducer
from fogline_cloud.shard.shard_writer import ShardWriter
from fogline_lab.events import STREAM, make_batch, make_event
from fogline_lab.kafka_broker import KafkaBroker
from sampling import a_few

OWNER = ShardOwner("bridge-1", "127.0.0.1:5672")
FORGED = {"transaction.partition.verification.enable": "false"}
"""Lets a record into a transaction that its coordinator knows nothing of."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with KafkaBroker(tmp_path_factory.mktemp("hanging"), properties=FORGED) as broker:
        yield broker


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """Whoever takes a shard waits less for transactions that nobody will end."""
    monkeypatch.setattr("fogline_cloud.shard.shard_writer.find_hanging", partial(find_hanging, limit_s=0.3))


def taken(clients, tenant):
    writer = ShardWriter(clients, ShardProducer(clients, tenant, 0), Layout(1))
    return writer, writer.take(OWNER)


def wait_visible(writer):
    while not writer.producer.visible():
        time.sleep(writer.producer.markers.due_s)


def hang(broker, tenant, topic, *records):
    """Records of the shard's own producer, in a transaction that nobody will end."""
    with RawKafka(broker.bootstrap) as raw:
        raw.write(raw.become(f"fogline-{tenant}-0"), topic, 0, [Record(*each) for each in records])


def events(tenant, *numbers):
    records = (record_of(make_event(number, tenant=tenant)) for number in numbers)
    return [(record.key, record.value, record.headers) for record in records]


@pytest.mark.fault("K1")
def test_settled_events_whose_marker_kafka_forgot_are_there_again(broker, tenant):
    clients = provided(broker.bootstrap, tenant, 1)
    telemetry = topics.of_lane(Lane.TELEMETRY, tenant)
    writer, _ = taken(clients, tenant)
    writer.producer.destroy()
    hang(broker, tenant, telemetry, *events(tenant, 1, 2, 3))
    assert find_hanging(clients, [(telemetry, 0)], 0.5) == [(telemetry, 0)], "the forgery failed"

    writer, recovered = taken(clients, tenant)
    assert [(each.stream, each.hwm) for each in recovered.known.values()] == [(STREAM, 3)]
    span, _ = make_batch(4, 5)
    assert writer.write_batch(Batch.of([make_event(4, tenant=tenant), make_event(5, tenant=tenant)]), span) == 0
    writer.producer.commit()
    assert landed(clients, tenant) == {(STREAM, number): 1 for number in range(1, 6)}
    writer.producer.destroy()


@pytest.mark.fault("K1")
@pytest.mark.parametrize(
    "topic",
    a_few([topics.commands, topics.audit, topics.checkpoint, topics.event, topics.command_response], topics.commands),
)
def test_every_topic_of_a_shard_is_readable_again(broker, tenant, topic):
    clients = provided(broker.bootstrap, tenant, 1)
    known = stream_entry(StreamState(gateway="gw-1", stream=STREAM, lane=Lane.TELEMETRY, hwm=7))
    forged = (*known, []) if topic is topics.checkpoint else events(tenant, 1)[0]
    hang(broker, tenant, topic(tenant), forged)
    writer, recovered = taken(clients, tenant)
    writer.producer.destroy()
    assert find_hanging(clients, [(name(tenant), 0) for name in (topics.telemetry, topic)]) == []
    stored = list(read_committed(clients, {(topic(tenant), 0): None}))
    assert (forged[0], forged[1]) in [(each.key, each.value) for each in stored]
    assert not recovered.commands
    if topic is topics.checkpoint:
        assert recovered.known["gw-1", STREAM].hwm == 7


class Forgetful:
    """A producer whose commits come to nothing, though it is told that they succeeded."""

    def __init__(self, producer):
        self._producer = producer

    def commit_transaction(self, limit_s):
        self._producer.flush(limit_s)

    def __getattr__(self, name):
        return getattr(self._producer, name)


@pytest.mark.fault("K1")
def test_nothing_is_settled_before_its_marker_is_seen(broker, tenant):
    clients = provided(broker.bootstrap, tenant, 1)
    writer, _ = taken(clients, tenant)
    writer.producer.limit_s = 1.0
    writer.producer._producer = Forgetful(writer.producer._producer)
    writer.write_batch(Batch.of([make_event(1, tenant=tenant)]), make_batch(1, 1)[0])
    assert writer.producer.commit()
    with pytest.raises(Unreachable, match="forgot"):
        wait_visible(writer)
    writer.producer.destroy()
    writer, recovered = taken(clients, tenant)
    writer.producer.destroy()
    assert not recovered.known


@pytest.mark.fault("K1")
def test_nothing_is_settled_by_the_marker_of_somebody_else(broker, tenant):
    """The coordinator forgets a commit; a new owner aborts what is open, and with it what was forgotten."""
    clients = provided(broker.bootstrap, tenant, 1)
    writer, _ = taken(clients, tenant)
    writer.producer._producer = Forgetful(writer.producer._producer)
    writer.write_batch(Batch.of([make_event(1, tenant=tenant)]), make_batch(1, 1)[0])
    assert writer.producer.commit()
    writer.producer._begun = True  # to the coordinator it is one transaction still
    writer.write_batch(Batch.of([make_event(2, tenant=tenant)]), make_batch(2, 2)[0])
    writer.producer._producer.flush(60)
    assert not writer.producer.visible()
    heir = clients.producer(f"fogline-{tenant}-0")
    heir.init_transactions(60)
    with pytest.raises(Unreachable, match="another producer"):
        wait_visible(writer)
    writer.producer.destroy()


@pytest.mark.fault("K1")
def test_bridge_killed_while_it_completes_hanging_transactions_loses_nothing(broker, tenant, monkeypatch):
    clients = provided(broker.bootstrap, tenant, 1)
    writer, _ = taken(clients, tenant)
    writer.producer.destroy()
    hang(broker, tenant, topics.telemetry(tenant), *events(tenant, 1, 2, 3))
    with monkeypatch.context() as patched:
        patched.setattr(ShardProducer, "commit", unreachable)
        with pytest.raises(Unreachable):
            taken(clients, tenant)
    writer, recovered = taken(clients, tenant)
    writer.producer.destroy()
    there = {number for _, number in landed(clients, tenant)}
    assert there == set(range(1, 1 + sum(each.hwm for each in recovered.known.values())))


def unreachable(producer):
    producer._producer.flush(60)
    raise Unreachable("it died here")


def test_a_shard_without_such_writes_nothing_but_its_owner(broker, tenant):
    clients = provided(broker.bootstrap, tenant, 1)
    for _ in range(2):
        writer, _ = taken(clients, tenant)
        writer.producer.destroy()
    raw = {(name, 0): None for name in (*topics.raw_topics(tenant), topics.commands(tenant), topics.audit(tenant))}
    assert list(read_committed(clients, raw)) == []
