"""Records of Kafka that no bridge of ours has written."""

import pytest
from confluent_kafka import Producer

from fogline.errors import Poison
from fogline.event import Lane
from fogline.testing.events import make_event
from fogline_cloud import topics
from fogline_cloud.bridge.recovery import recover
from fogline_cloud.kafka import KafkaClients
from fogline_cloud.ledger.sources import _Reader
from fogline_cloud.provision import create_topics
from fogline_cloud.reading import Stored, with_values
from fogline_cloud.records import place_of, record_of
from fogline_cloud.settings import Settings

MADE = record_of(make_event(1), bytes(16))
NAMES = [name for name, _ in MADE.headers]


def without_value(name):
    """The headers of a record as they are read, one of which had no value in Kafka."""
    return with_values([(each, None if each == name else value) for each, value in MADE.headers])


@pytest.mark.fault("S4")
@pytest.mark.parametrize("name", ["ce_gateway", "ce_lane", "ce_sequence"])
def test_header_without_a_value_is_poison_where_it_is_needed(name):
    """S4: a Kafka record whose header has a null value."""
    with pytest.raises(Poison):
        place_of(without_value(name), MADE.value)


@pytest.mark.fault("S4")
@pytest.mark.parametrize("name", NAMES)
def test_ledger_reads_on_after_a_header_without_a_value(name):
    """S4: the ledger counts what it can place, and goes on."""
    reader = _Reader()
    reader.take_record(Stored("topic", 0, 7, MADE.key, MADE.value, without_value(name)))
    reader.take_record(Stored("topic", 0, 8, MADE.key, MADE.value, MADE.headers))
    assert [at.offset for found in reader.kafka.values() for at in found][-1] == 8


def test_record_without_a_stream_has_no_place():
    assert place_of(without_value("ce_stream"), MADE.value) is None


@pytest.mark.fault("S4")
def test_recovery_reads_over_a_header_without_a_value(kafka, tenant):
    """S4: a shard is taken although another producer has written a record with a null header into its topic."""
    settings = Settings(tenant=tenant, kafka={"bootstrap.servers": kafka.bootstrap}, shards=1)
    clients = KafkaClients(settings.kafka)
    create_topics(clients, settings, 1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    headers = [(name, None if name == "ce_stream" else value) for name, value in MADE.headers]
    producer.produce(topics.of_lane(Lane.TELEMETRY, tenant), MADE.value, MADE.key, partition=0, headers=headers)
    assert producer.flush(30) == 0
    assert recover(clients, tenant, 0).known == {}
