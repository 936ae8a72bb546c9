"""A thread that alone uses one Kafka consumer, from its creation until it is closed."""

import logging
import math
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaException

from fogline.errors import FoglineError
from fogline_cloud.kafka.clients import readable

RETRY_S = 1.0
"""The pause before a thread begins again after an error."""
STUCK_S = 300.0
"""Time after which a thread that is still in the same turn is stuck. The longest turn is a rebalance that asks for positions:
10 s for each question. A commit that is waited for, and the end of a consumer, do not count: in an outage of Kafka librdkafka
repeats them until it is over (https://github.com/confluentinc/librdkafka/issues/3740)."""
ASK_S = 5.0
"""Interval of the question whether Kafka is there."""
_ANSWER_S = 2.0

_log = logging.getLogger("fogline.kafka")


class KafkaPresence:
    """Whether Kafka answers a consumer. librdkafka tells only clients that wait for something. `problem`: "" if it answers."""

    def __init__(self) -> None:
        self.problem = ""
        self._ask_at_s = 0.0

    def ask(self, consumer: Consumer, topic: str) -> None:
        """Ask for a topic if it is time; that takes up to `_ANSWER_S`."""
        if time.monotonic() < self._ask_at_s:
            return
        self._ask_at_s = time.monotonic() + ASK_S
        try:
            consumer.list_topics(topic, timeout=_ANSWER_S)
        except KafkaException as error:
            self.problem = f"Kafka does not answer: {readable(error)}"
        else:
            self.problem = ""


class ConsumerThread(threading.Thread, ABC):
    """Makes a consumer, calls `turn` until `stop`, and closes it. After an error it begins again, with a new consumer.

    `name` has the topics, for those who read the log. All methods but `start`, `stop` and `join` run on the thread.
    """

    def __init__(self, name: str, make: Callable[[], Consumer]) -> None:
        super().__init__(name=name, daemon=True)
        self._make = make
        self._stopping = threading.Event()
        self.progress_s = math.inf
        """The time at which the present turn began, or infinite while it waits for the end of an outage of Kafka."""

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
            self.progress_s = time.monotonic()
            try:
                self._use_consumer()
            except Exception as error:  # noqa: BLE001 - an unexpected error must not end the thread unseen
                self.on_error(error)

    def _use_consumer(self) -> None:
        consumer = self._make()
        try:
            self.begin(consumer)
            while not self._stopping.is_set():
                self.progress_s = time.monotonic()
                self.turn(consumer)
        finally:
            self.progress_s = math.inf
            consumer.close()


def stuck_consumers() -> str:
    """Return which threads of this process do not come back from librdkafka, or an empty text."""
    threads = [each for each in threading.enumerate() if isinstance(each, ConsumerThread)]
    names = sorted(each.name for each in threads if time.monotonic() - each.progress_s > STUCK_S)
    return f"no progress for {STUCK_S:.0f} s: {'; '.join(names)}" if names else ""
