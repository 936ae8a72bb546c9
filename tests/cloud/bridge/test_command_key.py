"""All bridges of a tenant have the same key for identifiers of commands."""

from concurrent.futures import ThreadPoolExecutor

from fogline_cloud.bridge.commands.command_key import command_key
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.shard.recovery import read_checkpoint


def test_bridges_that_start_at_once_have_the_same_key_and_keep_it(bench):
    """The first bridge makes one and keeps it in Kafka."""
    clients = [KafkaClients(bench.settings.kafka) for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        keys = list(pool.map(lambda each: command_key(each, bench.tenant), clients))
    assert len(set(keys)) == 1
    assert len(keys[0]) == 32
    bench.shard()
    assert command_key(bench.clients, bench.tenant) == keys[0]


def test_a_bridge_that_others_fence_again_and_again_makes_the_key_in_the_end(bench, monkeypatch):
    others = 6

    def read(clients, tenant, shard, *, stable=False):
        nonlocal others
        if not stable and others:
            others -= 1
            clients.producer(topics.transactional_id(tenant, topics.COMMAND_KEY)).init_transactions(60)
        return read_checkpoint(clients, tenant, shard, stable=stable)

    monkeypatch.setattr("fogline_cloud.bridge.commands.command_key.read_checkpoint", read)
    monkeypatch.setattr("fogline_cloud.bridge.commands.command_key.BASE_S", 0.01)
    assert len(command_key(bench.clients, bench.tenant)) == 32
    assert not others
