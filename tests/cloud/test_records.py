"""Kafka records that other programs wrote."""

import pytest
from confluent_kafka import Producer

from fogline.errors import Poison
from fogline.events.event import Lane
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.kafka.committed_records import CommittedRecord, with_values
from fogline_cloud.kafka.records import position_of, record_of
from fogline_cloud.ledger.evidence import EvidenceReader
from fogline_cloud.settings import CloudSettings
from fogline_cloud.shard.recovery import recover
from fogline_cloud.shard.topic_admin import create_topics
from fogline_lab.events import make_event

MADE = record_of(make_event(1), bytes(16))
NAMES = [name for name, _ in MADE.headers]


def without_value(name):
    """The headers as they are read, if one has no value in Kafka."""
    return with_values([(each, None if each == name else value) for each, value in MADE.headers])


@pytest.mark.fault("S4")
@pytest.mark.parametrize("name", ["ce_gateway", "ce_lane", "ce_sequence"])
def test_header_without_a_value_is_poison_where_it_is_needed(name):
    """S4: a Kafka record whose header has a null value."""
    with pytest.raises(Poison):
        position_of(without_value(name), MADE.value)


@pytest.mark.fault("S4")
@pytest.mark.parametrize("name", NAMES)
def test_ledger_reads_on_after_a_header_without_a_value(name):
    """S4: the ledger counts the records with a position, and continues."""
    reader = EvidenceReader("t", {})
    reader.take_record(CommittedRecord("topic", 0, 7, MADE.key, MADE.value, without_value(name)))
    reader.take_record(CommittedRecord("topic", 0, 8, MADE.key, MADE.value, MADE.headers))
    assert [(1, 1)] in [evidence.kafka.spans for evidence in reader.finish()]


def test_record_without_a_stream_has_no_place():
    assert position_of(without_value("ce_stream"), MADE.value) is None


@pytest.mark.fault("S4")
def test_recovery_reads_over_a_header_without_a_value(kafka, tenant):
    """S4: a shard is taken although another producer has written a record with a null header into its topic."""
    settings = CloudSettings(tenant=tenant, kafka={"bootstrap.servers": kafka.bootstrap}, shards=1)
    clients = KafkaClients(settings.kafka)
    create_topics(clients, settings, 1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    headers = [(name, None if name == "ce_stream" else value) for name, value in MADE.headers]
    producer.produce(topics.of_lane(Lane.TELEMETRY, tenant), MADE.value, MADE.key, partition=0, headers=headers)
    assert producer.flush(60) == 0
    assert recover(clients, tenant, 0).known == {}
