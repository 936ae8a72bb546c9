"""Which shards this bridge should own: bridges are one consumer group, and an assigned partition is a hint.

The consumer is never read from; the fence of each shard's producer decides. One thread, which alone touches the
consumer.
"""

import logging
import threading
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaException, TopicPartition

from fogline_cloud import topics
from fogline_cloud.kafka import KafkaClients, readable

_log = logging.getLogger("fogline.bridge")


def group_of(tenant: str) -> str:
    """The consumer group of a tenant's bridges."""
    return f"fogline-bridge-{tenant}"


class Ownership:
    """`gained` and `lost` are called with shard numbers, on this object's thread, which they must not hold up."""

    def __init__(
        self,
        clients: KafkaClients,
        tenant: str,
        name: str,
        *,
        client_id: str,
        gained: Callable[[int], None],
        lost: Callable[[int], None],
    ) -> None:
        self._clients = clients
        self._tenant = tenant
        self._name = name
        self._client_id = client_id
        self._gained = gained
        self._lost = lost
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ownership", daemon=True)

    def start(self) -> None:
        """Join the group."""
        self._thread.start()

    def stop(self) -> None:
        """Leave the group and wait until that is done."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        consumer = self._clients.member(group_of(self._tenant), self._name, self._client_id)
        try:
            consumer.subscribe(
                [topics.telemetry(self._tenant)], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke
            )
            while not self._stopping.is_set():
                message = consumer.poll(0.5)  # serves the group; the partitions are paused
                if message is not None and message.error() is not None:
                    _log.warning("group of bridges: %s", message.error().str())
        finally:
            consumer.close()

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        try:
            consumer.incremental_assign(partitions)
            consumer.pause(partitions)
        except KafkaException as error:
            _log.warning("group of bridges: %s", readable(error))
        for each in partitions:
            self._gained(each.partition)

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            self._lost(each.partition)
        try:
            consumer.incremental_unassign(partitions)
        except KafkaException as error:
            _log.warning("group of bridges: %s", readable(error))
