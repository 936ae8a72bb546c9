"""All bridges of a tenant have the same key for identifiers of commands, wherever it comes from."""

from concurrent.futures import ThreadPoolExecutor

from fogline.signature import Signer, make_key, read_signer
from fogline_cloud.bridge.command_key import command_key
from fogline_cloud.kafka import KafkaClients


def test_bridges_that_start_at_once_have_the_same_key_and_keep_it(bench):
    """B2: without a configured key the first bridge makes one and keeps it in Kafka."""
    clients = [KafkaClients(bench.settings.kafka) for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        keys = list(pool.map(lambda each: command_key(each, bench.tenant, Signer()), clients))
    assert len(set(keys)) == 1
    assert len(keys[0]) == 32
    bench.shard()
    assert command_key(bench.clients, bench.tenant, Signer()) == keys[0]


def test_with_a_signing_key_it_follows_from_that_one(bench):
    private, _ = make_key()
    signer = read_signer("key-1", private, "test")
    key = command_key(bench.clients, bench.tenant, signer)
    assert key == command_key(bench.clients, bench.tenant, signer)
    assert key not in (command_key(bench.clients, bench.tenant, Signer()), signer.key.private_bytes_raw())
