"""A thread that alone uses one Kafka consumer, from its creation until it is closed."""

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaException

from fogline.errors import FoglineError
from fogline_cloud.kafka import readable

RETRY_S = 1.0
"""The pause before a thread begins again after an error."""

_log = logging.getLogger("fogline.kafka")


class ConsumerThread(threading.Thread, ABC):
    """Makes a consumer, calls `turn` until `stop`, and closes it. After an error it begins again, with a new consumer.

    `name` has the topics, for those who read the log. All methods but `start`, `stop` and `join` run on the thread.
    """

    def __init__(self, name: str, make: Callable[[], Consumer]) -> None:
        super().__init__(name=name, daemon=True)
        self._make = make
        self._stopping = threading.Event()

    def stop(self) -> None:
        """Ask the thread to end. Thread-safe; safe to call twice."""
        self._stopping.set()

    def join(self, timeout: float | None = None) -> None:
        """See `threading.Thread`. Returns at once if the thread was not started."""
        if self.is_alive():
            super().join(timeout)

    @abstractmethod
    def begin(self, consumer: Consumer) -> None:
        """Assign partitions to a new consumer, or subscribe it."""

    @abstractmethod
    def turn(self, consumer: Consumer) -> None:
        """Poll, for less than a second, and take what came."""

    def on_error(self, error: Exception) -> None:
        """React to an error, after the consumer was closed."""
        unexpected = not isinstance(error, FoglineError | KafkaException)
        _log.warning("%s begins again in %.0f s: %s", self.name, RETRY_S, readable(error), exc_info=unexpected and error)
        self._stopping.wait(RETRY_S)

    def run(self) -> None:
        """See `threading.Thread`."""
        while not self._stopping.is_set():
            try:
                self._use_consumer()
            except Exception as error:  # noqa: BLE001 - an unexpected error must not end the thread unseen
                self.on_error(error)

    def _use_consumer(self) -> None:
        consumer = self._make()
        try:
            self.begin(consumer)
            while not self._stopping.is_set():
                self.turn(consumer)
        finally:
            consumer.close()
