"""Keeps the table of devices up to date from `fogline.devices`, on a thread. Every bridge has all devices of the tenant."""

import logging
import threading
from collections.abc import Callable

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from fogline.process.log_throttle import LogThrottle
from fogline_cloud import topics
from fogline_cloud.devices.device_table import DeviceEntry, DeviceTable
from fogline_cloud.devices.record import device_key
from fogline_cloud.kafka import KafkaClients, readable

_END = KafkaError._PARTITION_EOF  # noqa: SLF001 - librdkafka's name for it
_MOST = 2000
_WAIT_S = 0.2
_RETRY_S = 2.0

_log = logging.getLogger("fogline.devices")
_log.addFilter(LogThrottle())


class DeviceFeed:
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
        self.loaded = False
        self._clients = clients
        self._topic, self._shards = topics.devices(tenant), shards
        self._table = table
        self._on_change = on_change
        self._on_forgotten = on_forgotten
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="devices", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def stop(self) -> None:
        """Ask the thread to end."""
        self._stopping.set()

    def join(self, limit_s: float) -> None:
        """Wait until the thread has ended, at most `limit_s` seconds."""
        if self._thread.is_alive():
            self._thread.join(limit_s)

    def _run(self) -> None:
        while not self._stopping.is_set():
            reader = self._clients.reader()
            try:
                self._read(reader)
            except KafkaException as error:
                _log.warning("the registry of devices cannot be read: %s", readable(error))
                self._stopping.wait(_RETRY_S)
            finally:
                reader.close()

    def _read(self, reader: Consumer) -> None:
        reader.assign([TopicPartition(self._topic, each, OFFSET_BEGINNING) for each in range(self._shards)])
        unread = set(range(self._shards))
        while not self._stopping.is_set():
            for message in reader.consume(_MOST, _WAIT_S):
                error = message.error()
                if error is None:
                    self._apply(message.key() or b"", message.value() or b"")
                elif error.code() == _END:
                    unread.discard(message.partition())
                    self.loaded = self.loaded or not unread
                elif not error.retriable():
                    raise KafkaException(error)

    def _apply(self, key: bytes, value: bytes) -> None:
        name = self._table.apply_or_log(key, value)
        if not name or not self.loaded:
            return
        device = self._table.get(name)
        if not value and device is not None and key == device_key(name).encode():
            self._on_forgotten(device)
        self._on_change(name)
