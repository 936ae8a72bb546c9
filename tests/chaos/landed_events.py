"""The topics of a tenant, and the events that land in them."""

from collections import Counter

from fogline.events.event import Lane
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.kafka.committed_records import read_committed
from fogline_cloud.kafka.records import position_of
from fogline_cloud.settings import CloudSettings
from fogline_cloud.shard.topic_admin import create_topics


def provided(bootstrap, tenant, shards):
    settings = CloudSettings(tenant=tenant, kafka={"bootstrap.servers": bootstrap}, shards=shards)
    clients = KafkaClients(settings.kafka)
    create_topics(clients, settings, 1)
    return clients


def landed(clients, tenant, shards=1):
    """Count how often a `read_committed` consumer sees each sequence of each stream."""
    topic = topics.of_lane(Lane.TELEMETRY, tenant)
    records = read_committed(clients, {(topic, shard): None for shard in range(shards)})
    places = [position_of(record.headers, record.value) for record in records]
    return Counter((place.stream, place.last) for place in places if place)
