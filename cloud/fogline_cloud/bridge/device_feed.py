"""Keeps the table of devices up to date from `fogline.devices`, on a thread. Every bridge has all devices of the tenant."""

from collections.abc import Callable

from fogline_cloud import topics
from fogline_cloud.bridge.topic_feed import TopicFeed
from fogline_cloud.devices.device_table import DeviceEntry, DeviceTable
from fogline_cloud.devices.record import device_key
from fogline_cloud.kafka import KafkaClients


class DeviceFeed(TopicFeed):
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
        super().__init__(clients, topics.devices(tenant), shards)
        self._table = table
        self._on_change = on_change
        self._on_forgotten = on_forgotten

    def apply(self, key: bytes, value: bytes) -> None:
        """See `TopicFeed`."""
        name = self._table.apply_or_log(key, value)
        if not name or not self.loaded:
            return
        device = self._table.get(name)
        if not value and device is not None and key == device_key(name).encode():
            self._on_forgotten(device)
        self._on_change(name)
