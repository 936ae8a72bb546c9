"""Topics that got more partitions than the tenant has shards: Kafka lets an operator add some, and nobody can remove them."""

import msgspec
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewPartitions

from fogline.errors import Misconfigured
from fogline_cloud.cli.main import main
from fogline_cloud.kafka import topics
from fogline_cloud.shard.topic_admin import check_topics, create_topics


@pytest.fixture
def grown(bench):
    """A tenant of one shard, whose topics of telemetry and audit have two partitions."""
    names = [topics.telemetry(bench.tenant), topics.audit(bench.tenant)]
    admin = bench.clients.admin()
    for future in admin.create_partitions([NewPartitions(each, 2) for each in names]).values():
        future.result(60)
    for _ in range(300):  # each try waits for Kafka's answer
        if all(bench.clients.topics()[each] == 2 for each in names):
            return bench
    pytest.fail(f"{names} have no second partition")


def test_a_topic_with_added_partitions_keeps_its_shards(grown):
    assert check_topics(grown.clients, grown.settings) == []
    assert create_topics(grown.clients, grown.settings, 1) == []


def test_the_shards_that_the_topics_were_created_with_are_named_whatever_partitions_were_added(grown):
    """With as many shards as there are partitions now, gateways would move to shards that do not know their streams."""
    more = msgspec.structs.replace(grown.settings, shards=2)
    (problem,) = check_topics(grown.clients, more)
    assert problem.endswith("have 1; set shards = 1, or run: fogline topics reshard")
    with pytest.raises(Misconfigured, match="set shards = 1"):
        create_topics(grown.clients, more, 1)


def test_a_record_in_an_added_partition_of_the_audit_is_found(grown, folder, capsys):
    config = folder / "cloud.toml"
    server = grown.settings.kafka["bootstrap.servers"]
    config.write_text(f'tenant = "{grown.tenant}"\nshards = 1\n[kafka]\n"bootstrap.servers" = "{server}"\n')
    assert main(["audit", "verify", "--config", str(config)]) == 0
    producer = Producer({"bootstrap.servers": server})
    producer.produce(topics.audit(grown.tenant), b"{}", partition=1)
    assert producer.flush(60) == 0
    assert main(["audit", "verify", "--config", str(config)]) == 1
    assert f"{topics.audit(grown.tenant)}[1] at offset 0: no bridge writes there" in capsys.readouterr().err
