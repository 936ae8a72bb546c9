"""Creates a tenant's Kafka topics, and checks them."""

import time
from collections.abc import Mapping

from confluent_kafka import KafkaException
from confluent_kafka.admin import ConfigResource, NewTopic, ResourceType

from fogline.errors import Misconfigured
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.clients import KafkaClients, mapped, readable
from fogline_cloud.settings import CloudSettings
from fogline_cloud.shard.checkpoint import Layout, entry_of
from fogline_cloud.shard.recovery import read_checkpoint

_LISTED_S = 20.0
LAYOUT_ID = "layout"
"""The purpose of the producer that writes the layout (see `topics.transactional_id`)."""


def create_topics(clients: KafkaClients, settings: CloudSettings, replication: int) -> list[str]:
    """Create the missing topics and return their names. Raises `Misconfigured` if an existing topic differs."""
    existing = clients.topics()
    has_layout = topics.checkpoint(settings.tenant) in existing
    layout = read_checkpoint(clients, settings.tenant, 0).layout if has_layout else None
    if problems := _partition_problems(existing, settings, layout):
        raise Misconfigured(problems[0])
    missing = [topic for topic in _topics(settings) if topic.name not in existing]
    names = [topic.name for topic in missing]
    if missing:
        admin = clients.admin()
        new = [NewTopic(topic.name, topic.partitions, replication, config=topic.config) for topic in missing]
        for name, future in admin.create_topics(new, operation_timeout=30).items():
            try:
                future.result(60)
            except KafkaException as error:
                raise Misconfigured(f"topic {name} cannot be created: {readable(error)}") from None
        wait_until_listed(clients, {topic.name: topic.partitions for topic in missing})
    if layout is None:
        _write_layout(clients, settings)
    return names


def _topics(settings: CloudSettings) -> list[topics.Topic]:
    names = settings.flow.canonical.names
    return topics.all_topics(settings.tenant, settings.shards, kafka_commands=settings.commands.kafka, names=names)


def wait_until_listed(clients: KafkaClients, partitions: Mapping[str, int]) -> None:
    """Wait until Kafka lists these topics with at least these partitions. Raises `Misconfigured`."""
    deadline = time.monotonic() + _LISTED_S
    while True:
        listed = clients.topics()
        if all(listed.get(name, 0) >= count for name, count in partitions.items()):
            return
        if time.monotonic() > deadline:
            raise Misconfigured(f"the topics were created, but Kafka does not list them after {_LISTED_S:.0f} s")
        time.sleep(0.05)


def _write_layout(clients: KafkaClients, settings: CloudSettings) -> None:
    producer = clients.producer(topics.transactional_id(settings.tenant, LAYOUT_ID))
    key, value = entry_of(Layout(settings.shards))
    with mapped("writing the layout"):
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(topics.checkpoint(settings.tenant), value, key, partition=0)
        producer.commit_transaction(30)


def check_topics(clients: KafkaClients, settings: CloudSettings) -> list[str]:
    """Return the problems of the topics, one line each. Raises `Misconfigured` without Kafka, or if a topic is missing."""
    existing = clients.topics()
    topics.require([topic.name for topic in _topics(settings)], existing)
    # A killed bridge may have left a transaction open until the next owner ends it, so the first read does not wait for that.
    first = read_checkpoint(clients, settings.tenant, 0, stable=True).layout
    layout = first or read_checkpoint(clients, settings.tenant, 0).layout
    if problems := _partition_problems(existing, settings, layout):
        return problems
    if layout is None:
        return [f"{topics.checkpoint(settings.tenant)} holds no layout; run: fogline topics create"]
    return []


def _partition_problems(existing: dict[str, int], settings: CloudSettings, layout: Layout | None) -> list[str]:
    """Return what is wrong with the partitions. A topic that got more of them later keeps its shards: the layout counts."""
    if layout is not None and layout.former:
        return [f"the change from {layout.former} to {layout.shards} shards has not ended: run: fogline topics reshard"]
    shards = existing.get(topics.telemetry(settings.tenant), settings.shards) if layout is None else layout.shards
    if shards != settings.shards:
        return [_changed(settings, shards)]
    return [
        f"topic {topic.name} has {found} partitions, but needs {topic.partitions}"
        for topic in _topics(settings)
        if ((found := existing.get(topic.name, topic.partitions)) < topic.partitions and topic.by_shard)
        or (layout is None and found != topic.partitions)
    ]


def _changed(settings: CloudSettings, shards: int) -> str:
    what = f"shards = {settings.shards}, but the topics of {settings.tenant} have {shards}"
    return f"{what}; set shards = {shards}" + (", or run: fogline topics reshard" if settings.shards > shards else "")


def check_replication(clients: KafkaClients, settings: CloudSettings) -> list[str]:
    """Return the topics that could lose data with one broker: fewer than 3 replicas, or `min.insync.replicas` below 2."""
    names = topics.raw_topics(settings.tenant)
    admin = clients.admin()
    with mapped("reading the topics' settings"):
        found = admin.list_topics(timeout=10).topics
        futures = admin.describe_configs([ConfigResource(ResourceType.TOPIC, name) for name in names])
        insync = {resource.name: int(future.result(10)["min.insync.replicas"].value) for resource, future in futures.items()}
    problems = []
    for name in names:
        replicas = min((len(each.replicas) for each in found[name].partitions.values()), default=0)
        if replicas < 3 or insync[name] < 2:
            problems.append(f"topic {name}: {replicas} replicas, min.insync.replicas {insync[name]}: 3 and 2 are needed")
    return problems
