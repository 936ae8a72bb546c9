"""Reads one topic for one AMQP consumer, on a thread: only committed events, and no more than the consumer takes.

Position and assignment are those of a Kafka consumer group, so that consumers of one name share the events, at all bridges.
"""

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from fogline.process.kernel_clock import wall_clock_ms
from fogline_cloud.bridge.consumers.settled_offsets import SettledOffsets
from fogline_cloud.kafka.clients import KafkaClients, Partition, readable
from fogline_cloud.kafka.committed_records import CommittedRecord, with_values
from fogline_cloud.kafka.consumer_thread import ConsumerThread

Selected = TypeVar("Selected")
COMMIT_S = 1.0
"""Interval at which the position is committed."""
_POLL_S = 0.2
_IDLE_S = 2.0
"""Time without credit after which the consumer reads nothing ahead."""
_MOST = 500
"""Records to read before the position may be committed again."""
_QUERY_S = 10.0
_log = logging.getLogger("fogline.consumers")


class ConsumerFeed(ConsumerThread, Generic[Selected]):
    """Reads until `stop`.

    On its thread it calls `select`, which returns None for a record that the consumer does not want, and `deliver` with what
    the consumer gets. An error of Kafka or of `select` ends it: it calls `failed` with it, once.
    """

    def __init__(
        self,
        clients: KafkaClients,
        group: str,
        topic: str,
        *,
        from_beginning: bool,
        select: Callable[[CommittedRecord], Selected | None],
        deliver: Callable[[Sequence[Selected]], None],
        failed: Callable[[Exception], None],
    ) -> None:
        super().__init__(f"consumer {group} of {topic}", partial(clients.subscriber, group, from_beginning=from_beginning))
        self._since_ms = None if from_beginning else wall_clock_ms()
        self._topic = topic
        self._select = select
        self._deliver = deliver
        self._failed = failed
        self._changed = threading.Condition()
        self._granted = self._granted_bytes = 0
        self._taken = self._taken_bytes = 0
        self._settled: list[tuple[Partition, int]] = []
        self._offsets = SettledOffsets()
        self._committed: dict[Partition, int] = {}
        self._commit_at_s = 0.0
        self._first_count = 0
        self._paused = False
        self._failure: KafkaException | None = None

    def grant(self, events: int, size_bytes: int) -> None:
        """Take events up to these totals since the start; the last one may exceed the bytes. Thread-safe."""
        with self._changed:
            self._granted, self._granted_bytes = events, size_bytes
            self._changed.notify()

    def settle(self, partition: Partition, offset: int) -> None:
        """Note that the consumer has settled a record. Thread-safe."""
        with self._changed:
            self._settled.append((partition, offset))

    def stop(self) -> None:
        """Commit the position and end. Thread-safe; safe to call twice."""
        super().stop()
        with self._changed:
            self._changed.notify()

    def begin(self, consumer: Consumer) -> None:
        """See `ConsumerThread`."""
        consumer.subscribe([self._topic], on_assign=self._on_assigned, on_revoke=self._on_revoked, on_lost=self._on_lost)

    def on_error(self, error: Exception) -> None:
        """See `ConsumerThread`."""
        self.stop()
        _log.warning("a consumer of %s ends: %s", self._topic, readable(error))
        self._failed(error)

    def turn(self, consumer: Consumer) -> None:
        """See `ConsumerThread`."""
        with self._changed:
            if not self._has_room() and not self._paused:
                self._changed.wait_for(lambda: self._has_room() or self._stopping.is_set(), _IDLE_S)
        self._pause(consumer, paused=not self._has_room())
        selected: list[Selected] = []
        message = consumer.poll(_POLL_S)
        if self._failure is not None:
            raise self._failure
        for _ in range(_MOST):
            if message is None:
                break
            self._take(message, selected)
            message = consumer.poll(0) if self._has_room() else None
        if message is not None:
            self._take(message, selected)
        if selected:
            self._deliver(selected)
        if time.monotonic() >= self._commit_at_s:
            self._commit(consumer, wait=False)

    def _has_room(self) -> bool:
        return self._taken < self._granted and self._taken_bytes < self._granted_bytes

    def _take(self, message: Message, selected: list[Selected]) -> None:
        error = message.error()
        if error is not None:
            if error.retriable():
                return
            raise KafkaException(error)
        partition, offset, value = (message.topic(), message.partition()), message.offset(), message.value() or b""
        self._offsets.taken(partition, offset)
        headers, (_, time_ms) = with_values(message.headers()), message.timestamp()
        found = self._select(CommittedRecord(*partition, offset, message.key() or b"", value, headers, time_ms))
        if found is None:
            self._offsets.settled(partition, offset)
            return
        self._taken += 1
        self._taken_bytes += len(value)
        selected.append(found)

    def _pause(self, consumer: Consumer, *, paused: bool) -> None:
        assigned = consumer.assignment()
        if paused:
            consumer.pause(assigned)  # also those that came by a rebalance meanwhile
        elif self._paused:
            consumer.resume(assigned)
        self._paused = paused

    def _commit(self, consumer: Consumer, *, wait: bool) -> None:
        self._commit_at_s = time.monotonic() + COMMIT_S
        with self._changed:
            settled, self._settled = self._settled, []
        for partition, offset in settled:
            self._offsets.settled(partition, offset)
        positions = self._offsets.positions()
        # What was committed without waiting may have failed, so the last commit of a position has all of them.
        committed = {} if wait else self._committed
        changed = [(each, offset) for each, offset in positions.items() if committed.get(each) != offset]
        due = [TopicPartition(*each, offset, str(self._first_count)) for each, offset in changed]
        if not due:
            return
        self._committed = positions
        try:
            consumer.commit(offsets=due, asynchronous=not wait)
        except KafkaException as error:  # the records come again
            _log.warning("the position of a consumer of %s is not committed: %s", self._topic, readable(error))

    def _on_assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        try:
            consumer.incremental_assign(self._begins(consumer, partitions))
        except KafkaException as error:  # as an error of this callback it would end the thread, and not be caught
            self._failure = error

    def _begins(self, consumer: Consumer, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Return where to begin: with the first record since this feed was made, not since Kafka has assigned the partition.

        A partition that the topic got later than the group was made is read from its first record.
        """
        if self._since_ms is None or not partitions:
            return partitions
        self._first_count = _count_at_first(consumer, self._topic)
        kept: list[TopicPartition] = consumer.committed(partitions, timeout=_QUERY_S)
        for each in kept:
            if each.offset < 0 and each.partition >= self._first_count:
                each.offset = consumer.get_watermark_offsets(each, timeout=_QUERY_S, cached=False)[0]
                self._offsets.begin((each.topic, each.partition), each.offset)
        since = [TopicPartition(each.topic, each.partition, self._since_ms) for each in kept if each.offset < 0]
        if not since:
            return kept
        # The ends are asked for first: a record that comes between the two questions is found by its time.
        ends = {each.partition: consumer.get_watermark_offsets(each, timeout=_QUERY_S, cached=False)[1] for each in since}
        begins: list[TopicPartition] = consumer.offsets_for_times(since, timeout=_QUERY_S)
        for each in begins:
            if each.offset < 0:  # there is no such record yet
                each.offset = ends[each.partition]
            self._offsets.begin((each.topic, each.partition), each.offset)
        self._commit_at_s = 0.0  # the next consumer goes on here, if nothing comes meanwhile
        return [each for each in kept if each.offset >= 0] + begins

    def _on_revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.progress_s = math.inf
        self._commit(consumer, wait=True)  # also when the consumer is closed
        self._on_lost(consumer, partitions)

    def _on_lost(self, _: Any, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            self._offsets.forget((each.topic, each.partition))
            self._committed.pop((each.topic, each.partition), None)


def _count_at_first(consumer: Consumer, topic: str) -> int:
    """Return the number of partitions when the group was made: it is beside each position that the group has committed."""
    count = len(consumer.list_topics(topic, timeout=_QUERY_S).topics[topic].partitions)
    every = [TopicPartition(topic, number) for number in range(count)]
    noted = [each.metadata or "" for each in consumer.committed(every, timeout=_QUERY_S) if each.offset >= 0]
    return min((int(each) for each in noted if each.isdecimal()), default=count)
