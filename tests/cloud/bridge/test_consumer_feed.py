"""The feed of an AMQP consumer on a topic that gets more partitions, as `fogline topics reshard` gives it."""

import queue

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewPartitions

from fogline_cloud.bridge.consumers.consumer_feed import ConsumerFeed
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.settings import CloudSettings
from fogline_cloud.shard.topic_admin import create_topics, wait_until_listed

LIMIT_S = 60.0


class Reader:
    """A consumer of telemetry, which settles what it gets."""

    def __init__(self, settings):
        self.got = queue.SimpleQueue()
        topic = topics.telemetry(settings.tenant)
        self.feed = ConsumerFeed(
            KafkaClients(settings.kafka),
            f"g-{settings.tenant}",
            topic,
            from_beginning=False,
            select=lambda record: record,
            deliver=self._deliver,
            failed=self.got.put,
        )
        self.feed.grant(1000, 1 << 20)
        self.feed.start()

    def _deliver(self, records):
        for each in records:
            self.feed.settle((each.topic, each.partition), each.offset)
            self.got.put(each.value)

    def close(self):
        self.feed.stop()
        self.feed.join(LIMIT_S)


@pytest.fixture
def settings(kafka, tenant):
    made = CloudSettings(tenant=tenant, kafka={"bootstrap.servers": kafka.bootstrap}, shards=1)
    create_topics(KafkaClients(made.kafka), made, 1)
    return made


def produce(settings, value, partition):
    producer = Producer(dict(settings.kafka))
    producer.produce(topics.telemetry(settings.tenant), value, b"d-1", partition)
    assert producer.flush(LIMIT_S) == 0


def test_a_group_that_was_away_while_its_topic_grew_reads_the_new_partition_from_its_first_record(settings):
    first = Reader(settings)
    produce(settings, b"1", 0)
    assert first.got.get(timeout=LIMIT_S) == b"1"
    first.close()
    topic = topics.telemetry(settings.tenant)
    admin = KafkaClients(settings.kafka).admin()
    admin.create_partitions([NewPartitions(topic, 2)])[topic].result(LIMIT_S)
    wait_until_listed(KafkaClients(settings.kafka), {topic: 2})
    produce(settings, b"2", 0)
    produce(settings, b"3", 1)
    again = Reader(settings)
    assert sorted(again.got.get(timeout=LIMIT_S) for _ in range(2)) == [b"2", b"3"]
    again.close()
    last = Reader(settings)  # the new partition has a position, too
    produce(settings, b"4", 1)
    assert last.got.get(timeout=LIMIT_S) == b"4"
    last.close()
