"""Changes of a topic behind the back of a flow."""

from contextlib import suppress

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from flows.tenant_flow import Flow
from fogline.errors import Unreachable
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.shard.topic_admin import create_topics


def delete_before(flow: Flow, offset: int, partition: int = 0) -> None:
    """Let retention delete the records before an offset."""
    at = TopicPartition(topics.telemetry(flow.settings.tenant), partition, offset)
    admin = AdminClient(dict(flow.settings.kafka))
    for future in admin.delete_records([at]).values():
        future.result(60)


def create_again(flow: Flow) -> None:
    """Delete the telemetry topic and create it again."""
    name = topics.telemetry(flow.settings.tenant)
    clients = KafkaClients(flow.settings.kafka)
    admin = AdminClient(dict(flow.settings.kafka))
    former = clients.describe([name])[name].id
    admin.delete_topics([name], operation_timeout=60)[name].result(60)
    for _ in range(300):  # each try waits for Kafka's answer
        create_topics(clients, flow.settings, 1)
        with suppress(Unreachable):
            if clients.describe([name])[name].id != former:
                return
    pytest.fail(f"{name} is not created again")


def add_partition(flow: Flow, topic: str) -> int:
    """Give a topic one more partition, as an operator of Kafka does. Returns its number."""
    clients = KafkaClients(flow.settings.kafka)
    number = clients.topics()[topic]
    admin = AdminClient(dict(flow.settings.kafka))
    admin.create_partitions([NewPartitions(topic, number + 1)])[topic].result(60)
    for _ in range(300):  # each try waits for Kafka's answer
        if clients.topics()[topic] > number:
            return number
    pytest.fail(f"{topic} has no partition {number}")
