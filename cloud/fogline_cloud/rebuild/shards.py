"""Writes records to Kafka as the owner of every shard, which fences bridges."""

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from fogline.errors import Misconfigured, Unreachable
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.kafka.records import Headers
from fogline_cloud.shard.pace import MOST_BYTES
from fogline_cloud.shard.producer import ShardProducer


class Shards:
    """One transactional producer a shard. A context manager. Methods raise `Unreachable` as `ShardProducer` does."""

    def __init__(self, clients: KafkaClients, tenant: str, shards: int) -> None:
        self._producers = [ShardProducer(clients, tenant, shard) for shard in range(shards)]

    def __enter__(self) -> Self:
        for each in self._producers:
            each.fence()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for each in self._producers:
            each.destroy()

    def write(self, topic: str, shard: int, key: bytes, value: bytes | None, headers: Sequence[tuple[str, bytes]] = ()) -> None:
        """Write a record in the shard's open transaction, and commit that if it is full. Raises `Misconfigured`: too large."""
        if shard >= len(self._producers):
            raise Misconfigured(
                f"there are records of {topic}[{shard}], but shards = {len(self._producers)}: create more shards"
            )
        producer, more = self._producers[shard], Headers(headers)
        if not producer.write(topic, value, key, more):
            raise Misconfigured(
                f"{topic}: a record of {len(value or b'')} bytes is too large: raise max.message.bytes of the topic"
            )
        if producer.written_bytes >= MOST_BYTES:
            _commit(producer)

    def commit(self) -> None:
        """Commit the open transactions. Returns when readers of committed records see them."""
        for each in self._producers:
            _commit(each)


def _commit(producer: ShardProducer) -> None:
    try:
        if producer.commit() is None:
            return
        while not producer.visible():
            time.sleep(producer.markers.due_s)
    except Unreachable as error:
        raise Unreachable(f"{error}. Stop bridges and other runs of `fogline topics`, and run this again") from None
