"""The key for command ids: made by the first bridge and kept in Kafka (docs/decisions/0017)."""

import secrets
import time

from fogline.amqp.backoff import Backoff
from fogline.errors import Unreachable
from fogline_cloud.commands.command_id import KEY_BYTES
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.clients import KafkaClients, mapped
from fogline_cloud.shard.checkpoint import CommandKey, entry_of
from fogline_cloud.shard.recovery import read_checkpoint

_LIMIT_S = 30.0  # of one transaction
_PATIENCE_S = 60.0
BASE_S = 0.5
"""Base of the growing pauses between attempts, in seconds."""


def command_key(clients: KafkaClients, tenant: str) -> bytes:
    """Return the key, which is the same at every bridge of the tenant. Blocks on Kafka. Raises `Unreachable`."""
    deadline_s = time.monotonic() + _PATIENCE_S
    backoff = Backoff(BASE_S, cap_s=8.0)
    while True:
        if (found := read_checkpoint(clients, tenant, 0, stable=True).command_key) is not None:
            return found
        try:
            return _make(clients, tenant, secrets.token_bytes(KEY_BYTES))
        except Unreachable:  # another bridge makes one, and is fenced in its turn if this one tries again at once
            if time.monotonic() > deadline_s:
                raise
        time.sleep(backoff.next_s())


def _make(clients: KafkaClients, tenant: str, made: bytes) -> bytes:
    """Write a key unless there is one. If several bridges try, all but the last are fenced and raise `Unreachable`."""
    producer = clients.producer(topics.transactional_id(tenant, topics.COMMAND_KEY))
    with mapped("writing the key of commands"):
        producer.init_transactions(_LIMIT_S)
        if (found := read_checkpoint(clients, tenant, 0).command_key) is not None:
            return found
        key, value = entry_of(CommandKey(made))
        producer.begin_transaction()
        producer.produce(topics.checkpoint(tenant), value, key, partition=0)
        producer.commit_transaction(_LIMIT_S)
    return made
