"""Reads a compacted topic from its beginning and goes on with what is new, on a thread."""

import logging
import threading
from abc import ABC, abstractmethod

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from fogline.process.log_throttle import LogThrottle
from fogline_cloud.kafka import KafkaClients, readable

_END = KafkaError._PARTITION_EOF  # noqa: SLF001 - librdkafka's name for it
_MOST = 2000
_WAIT_S = 0.2
_RETRY_S = 2.0

_log = logging.getLogger("fogline.bridge")
_log.addFilter(LogThrottle())


class TopicFeed(ABC):
    """The feed of one topic. `loaded` is True once all that was there at the start has been read."""

    def __init__(self, clients: KafkaClients, topic: str, partitions: int) -> None:
        self.loaded = False
        self._clients = clients
        self._topic, self._partitions = topic, partitions
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"feed {topic}", daemon=True)

    @abstractmethod
    def apply(self, key: bytes, value: bytes) -> None:
        """Take a committed record. An empty value deletes the key. Called on the feed's thread."""

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
                _log.warning("%s cannot be read: %s", self._topic, readable(error))
                self._stopping.wait(_RETRY_S)
            finally:
                reader.close()

    def _read(self, reader: Consumer) -> None:
        reader.assign([TopicPartition(self._topic, each, OFFSET_BEGINNING) for each in range(self._partitions)])
        unread = set(range(self._partitions))
        while not self._stopping.is_set():
            for message in reader.consume(_MOST, _WAIT_S):
                error = message.error()
                if error is None:
                    self.apply(message.key() or b"", message.value() or b"")
                elif error.code() == _END:
                    unread.discard(message.partition())
                    self.loaded = self.loaded or not unread
                elif not error.retriable():
                    raise KafkaException(error)
