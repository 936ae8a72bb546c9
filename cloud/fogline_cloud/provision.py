"""The topics of a tenant: make them once, and say what is wrong with them."""

import time

from confluent_kafka import KafkaException
from confluent_kafka.admin import ConfigResource, NewTopic, ResourceType

from fogline.errors import Misconfigured
from fogline_cloud import topics
from fogline_cloud.bridge.checkpoint import Layout, layout_entry
from fogline_cloud.bridge.recovery import read_checkpoint
from fogline_cloud.kafka import KafkaClients, mapped, readable
from fogline_cloud.settings import Settings

_VISIBLE_S = 20.0


def create_topics(clients: KafkaClients, settings: Settings, replication: int) -> list[str]:
    """Make the topics that are missing; returns their names. Raises `Misconfigured` if those that are there differ."""
    there = clients.topics()
    wanted = topics.all_topics(settings.tenant, settings.shards)
    if problems := _partition_problems(there, settings):
        raise Misconfigured(problems[0])
    missing = [topic for topic in wanted if topic.name not in there]
    admin = clients.admin()
    futures = (
        admin.create_topics(
            [NewTopic(topic.name, topic.partitions, replication, config=topic.config) for topic in missing],
            operation_timeout=30,
        )
        if missing
        else {}
    )
    for name, future in futures.items():
        try:
            future.result(60)
        except KafkaException as error:
            raise Misconfigured(f"topic {name} cannot be made: {readable(error)}") from None
    if missing:
        _wait_until_visible(clients, [topic.name for topic in missing])
    if read_checkpoint(clients, settings.tenant, 0).layout is None:
        _write_layout(clients, settings)
    return [topic.name for topic in missing]


def _wait_until_visible(clients: KafkaClients, names: list[str]) -> None:
    deadline = time.monotonic() + _VISIBLE_S
    while set(names) - clients.topics().keys():
        if time.monotonic() > deadline:
            raise Misconfigured(f"the topics were made, but Kafka does not show them after {_VISIBLE_S:.0f} s")
        time.sleep(0.05)


def _write_layout(clients: KafkaClients, settings: Settings) -> None:
    producer = clients.producer(f"fogline-{settings.tenant}-layout")
    key, value = layout_entry(Layout(settings.shards))
    with mapped("writing the layout"):
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(topics.checkpoint(settings.tenant), value, key, partition=0)
        producer.commit_transaction(30)


def check_topics(clients: KafkaClients, settings: Settings) -> list[str]:
    """What is wrong with the topics, one line each; empty if nothing.

    Raises `Misconfigured` if Kafka or a topic is not there.
    """
    there = clients.topics()
    topics.require([topic.name for topic in topics.all_topics(settings.tenant, settings.shards)], there)
    if problems := _partition_problems(there, settings):
        return problems
    layout = _read_layout(clients, settings.tenant)
    if layout is None:
        return [f"{topics.checkpoint(settings.tenant)} holds no layout; run: fogline topics create"]
    if layout.shards != settings.shards:
        return [_changed(settings, layout.shards)]
    return []


def _read_layout(clients: KafkaClients, tenant: str) -> Layout | None:
    """It is old: a bridge that was killed may have left a transaction open, which only its heir will end."""
    return read_checkpoint(clients, tenant, 0, stable=True).layout or read_checkpoint(clients, tenant, 0).layout


def _partition_problems(there: dict[str, int], settings: Settings) -> list[str]:
    known = there.get(topics.telemetry(settings.tenant))
    if known is not None and known != settings.shards:
        return [_changed(settings, known)]
    return [
        f"topic {topic.name} has {there[topic.name]} partitions, {topic.partitions} are needed"
        for topic in topics.all_topics(settings.tenant, settings.shards)
        if there.get(topic.name, topic.partitions) != topic.partitions
    ]


def _changed(settings: Settings, shards: int) -> str:
    what = f"shards = {settings.shards}, but the topics of {settings.tenant} were made with {shards}"
    return f"{what}: the count is fixed; set shards = {shards}"


def check_replication(clients: KafkaClients, settings: Settings) -> list[str]:
    """Topics that could lose acknowledged data when one broker is lost: fewer than 3 replicas, or min.insync below 2."""
    names = topics.raw_topics(settings.tenant)
    admin = clients.admin()
    with mapped("asking for the topics"):
        found = admin.list_topics(timeout=10).topics
        futures = admin.describe_configs([ConfigResource(ResourceType.TOPIC, name) for name in names])
        insync = {resource.name: int(future.result(10)["min.insync.replicas"].value) for resource, future in futures.items()}
    problems = []
    for name in names:
        replicas = min((len(each.replicas) for each in found[name].partitions.values()), default=0)
        if replicas < 3 or insync[name] < 2:
            problems.append(f"topic {name}: {replicas} replicas, min.insync.replicas {insync[name]}: 3 and 2 are needed")
    return problems
