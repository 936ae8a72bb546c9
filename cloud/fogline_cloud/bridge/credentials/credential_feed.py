"""Keeps the table of devices' keys up to date from `fogline.credentials`, on a thread. Every bridge has all of them."""

from collections.abc import Callable

from fogline.address import shard_of
from fogline_cloud.credentials.credential_table import CredentialTable
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.kafka.committed_records import CommittedRecord
from fogline_cloud.kafka.record_tail import RecordTail


class CredentialFeed(RecordTail):
    """The feed of one bridge. `loaded` is True once the table had all keys.

    `on_change` gets each device whose keys changed after that, `on_loaded` nothing. Both are called on the feed's thread.
    """

    def __init__(
        self,
        clients: KafkaClients,
        tenant: str,
        shards: int,
        table: CredentialTable,
        *,
        on_change: Callable[[str], None],
        on_loaded: Callable[[], None],
    ) -> None:
        partitions = {(topics.credentials(tenant), shard): True for shard in range(shards)}
        super().__init__(clients, partitions, self._take, on_loaded)
        self._shards = shards
        self._table = table
        self._on_change = on_change

    def _take(self, records: list[CommittedRecord]) -> None:
        for each in records:
            if each.partition != shard_of(each.key.decode("utf-8", "replace"), self._shards):
                continue  # of a shard to which the device belonged formerly
            if (device := self._table.apply(each.key, each.value)) and self.loaded:
                self._on_change(device)
