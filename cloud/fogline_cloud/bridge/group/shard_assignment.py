"""The group of bridges: the shards that Kafka assigns to this bridge, and the addresses of the other bridges.

Bridges are one consumer group, and an assigned partition is a hint: the fence of each shard's producer decides which bridge
owns it. Each member's client id is `{name}@{host}:{port}`. A bridge that has not taken its shard yet refuses gateways.
"""

import asyncio
import logging
import time
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaException, TopicPartition

from fogline_cloud.kafka.clients import KafkaClients, readable
from fogline_cloud.kafka.consumer_thread import ConsumerThread, KafkaPresence

FRESH_S = 2.0
"""The time for which a result is kept."""
_LIMIT_S = 5.0
_ABANDON_S = 60.0
"""librdkafka's own time limit, which must not pass while its client lives. If the group's coordinator comes back after that,
librdkafka aborts the process (2.16: `rd_kafka_admin_coord_request` drops its reference twice, once more for the failure)."""

_log = logging.getLogger("fogline.bridge")


class ShardAssignment(ConsumerThread):
    """The membership of this bridge in its group. Callbacks run on its thread, and must not block."""

    def __init__(
        self, make_consumer: Callable[[], Consumer], topic: str, gained: Callable[[int], None], lost: Callable[[int], None]
    ) -> None:
        super().__init__(f"group of bridges, {topic}", make_consumer)
        self.presence = KafkaPresence()
        self._topic = topic
        self._gained = gained
        self._lost = lost

    def begin(self, consumer: Consumer) -> None:
        """See `ConsumerThread`."""
        consumer.subscribe([self._topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke)

    def turn(self, consumer: Consumer) -> None:
        """See `ConsumerThread`."""
        message = consumer.poll(0.5)  # serves the group; the partitions are paused
        if message is not None and message.error() is not None:
            _log.warning("group of bridges: %s", message.error().str())
        self.presence.ask(consumer, self._topic)

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


class ShardDirectory:
    """Finds the bridge that owns a shard. Asks Kafka at most once in `FRESH_S`. `own` is this bridge's client id."""

    def __init__(self, clients: KafkaClients, group: str, own: str) -> None:
        self._clients = clients
        self._group = group
        self._own = own
        self._owners: dict[int, str] = {}
        self._asked_at_s = -FRESH_S
        self._lock = asyncio.Lock()

    async def find(self, shard_number: int) -> str:
        """Return `host:port` of the other bridge that owns a shard, or an empty text if none is known."""
        return (await self.owners()).get(shard_number, "")

    async def owners(self) -> dict[int, str]:
        """Return `host:port` of the other bridges, by the number of each shard that they own."""
        async with self._lock:
            if time.monotonic() - self._asked_at_s >= FRESH_S:
                self._owners = await asyncio.to_thread(self._ask)
                self._asked_at_s = time.monotonic()
            return self._owners

    def _ask(self) -> dict[int, str]:
        admin = self._clients.admin()
        try:
            futures = admin.describe_consumer_groups([self._group], request_timeout=_ABANDON_S)
            members = futures[self._group].result(_LIMIT_S).members
        except (KafkaException, TimeoutError) as error:
            _log.warning("cannot look up the owners of shards: %s", readable(error))
            return {}
        return {
            partition.partition: member.client_id.partition("@")[2]
            for member in members
            if member.client_id != self._own
            for partition in member.assignment.topic_partitions
        }
