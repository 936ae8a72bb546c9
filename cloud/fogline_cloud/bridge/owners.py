"""Which bridge owns a shard, as the group of bridges knows it: each member's client id says where it listens.

A hint, as the assignment itself: the bridge that is named may not have taken the shard yet, and then says so.
"""

import asyncio
import logging
import time

from confluent_kafka import KafkaException

from fogline_cloud.kafka import KafkaClients, readable

FRESH_S = 2.0
"""For how long an answer is believed."""
_LIMIT_S = 5.0
_ABANDON_S = 60.0
"""librdkafka's own limit, which must not pass while its client lives: when the group's coordinator comes back after that, it
aborts the process (2.16: `rd_kafka_admin_coord_request` drops its reference, and the failure that it returns once more)."""

_log = logging.getLogger("fogline.bridge")


def client_id(name: str, advertised: str) -> str:
    """What a bridge calls itself in the group."""
    return f"{name}@{advertised}"


class Owners:
    """Asks Kafka, at most once in a while. `own`: this bridge's client id, which is never an answer."""

    def __init__(self, clients: KafkaClients, group: str, own: str) -> None:
        self._clients = clients
        self._group = group
        self._own = own
        self._known: dict[int, str] = {}
        self._asked = -FRESH_S
        self._asking = asyncio.Lock()

    async def find(self, shard: int) -> str:
        """`host:port` of the other bridge that has a shard, empty if nobody is known to."""
        async with self._asking:
            if time.monotonic() - self._asked >= FRESH_S:
                self._known = await asyncio.to_thread(self._ask)
                self._asked = time.monotonic()
        return self._known.get(shard, "")

    def _ask(self) -> dict[int, str]:
        admin = self._clients.admin()
        try:
            futures = admin.describe_consumer_groups([self._group], request_timeout=_ABANDON_S)
            members = futures[self._group].result(_LIMIT_S).members
        except (KafkaException, TimeoutError) as error:
            _log.warning("who owns which shard is not known: %s", readable(error))
            return {}
        return {
            partition.partition: member.client_id.partition("@")[2]
            for member in members
            if member.client_id != self._own
            for partition in member.assignment.topic_partitions
        }
