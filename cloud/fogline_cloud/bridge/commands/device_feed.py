"""Keeps the table of devices up to date from `fogline.devices`, on a thread. Every bridge has all devices of the tenant."""

from collections.abc import Callable

from fogline_cloud.devices.device_table import DeviceEntry, DeviceTable
from fogline_cloud.devices.record import device_key, is_elsewhere
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.kafka.committed_records import CommittedRecord
from fogline_cloud.kafka.record_tail import RecordTail


class DeviceFeed(RecordTail):
    """The feed of one bridge. `loaded` is True once the table had all devices.

    `on_change` gets the name of each device that changed after that. `on_forgotten` gets a device, as it was, that an
    operator has forgotten. Both are called on the feed's thread.
    """

    def __init__(
        self,
        clients: KafkaClients,
        tenant: str,
        shards: int,
        table: DeviceTable,
        *,
        on_change: Callable[[str], None],
        on_forgotten: Callable[[DeviceEntry], None],
    ) -> None:
        super().__init__(clients, {(topics.devices(tenant), shard): True for shard in range(shards)}, self._take)
        self._table = table
        self._shards = shards
        self._on_change = on_change
        self._on_forgotten = on_forgotten

    def _take(self, records: list[CommittedRecord]) -> None:
        for each in records:
            if is_elsewhere(each.key, each.partition, self._shards):
                continue
            name = self._table.apply_or_log(each.key, each.value)
            if not name or not self.loaded:
                continue
            device = self._table.get(name)
            if not each.value and device is not None and each.key == device_key(name).encode():
                self._on_forgotten(device)
            self._on_change(name)
