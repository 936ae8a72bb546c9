"""Reads committed records of topics as they come, on a thread of its own."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaError, TopicPartition

from fogline.errors import Unreachable
from fogline_cloud.kafka.clients import KafkaClients, Partition, readable
from fogline_cloud.kafka.committed_records import CommittedRecord, with_values
from fogline_cloud.kafka.consumer_thread import ConsumerThread, KafkaPresence

_BATCH = 500
_WAIT_S = 0.2
_END = KafkaError._PARTITION_EOF  # noqa: SLF001 - librdkafka's name for it


class RecordTail(ConsumerThread):
    """Reads partitions from their first record (True), or from their end on.

    On its thread it calls `on_records`, and `on_loaded` once, after all records that were there at the start. After an error,
    also one of `on_records`, it goes on with the first record that was not taken. `behind` tells why the records are not up
    to date, or is empty.
    """

    def __init__(
        self,
        clients: KafkaClients,
        partitions: Mapping[Partition, bool],
        on_records: Callable[[list[CommittedRecord]], None],
        on_loaded: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(f"tail of {', '.join(sorted({topic for topic, _ in partitions}))}", clients.reader)
        self.loaded = False
        self.behind = "it is reading what Kafka has"
        self._presence = KafkaPresence()
        self._first = {each: OFFSET_BEGINNING if whole else OFFSET_END for each, whole in partitions.items()}
        self._position = dict(self._first)
        self._unread: set[Partition] = set()
        self._waiting: deque[tuple[Mapping[Partition, int], Callable[[], None]]] = deque()
        self._on_records = on_records
        self._on_loaded = on_loaded

    def read_too(self, partitions: Iterable[Partition]) -> None:
        """Read these partitions too, from their end on. Must be called before the start."""
        self._first |= dict.fromkeys(partitions, OFFSET_END)
        self._position = dict(self._first)

    def when_read(self, ends: Mapping[Partition, int], call: Callable[[], None]) -> None:
        """Call `call` on this thread once `on_records` has had every record before these offsets. Thread-safe."""
        self._waiting.append((ends, call))

    def begin(self, consumer: Consumer) -> None:
        """See `ConsumerThread`."""
        self._unread = set(self._position)
        consumer.assign([TopicPartition(*partition, offset) for partition, offset in self._position.items()])

    def turn(self, consumer: Consumer) -> None:
        """See `ConsumerThread`."""
        found: list[CommittedRecord] = []
        position: dict[Partition, int] = {}
        failure = ""
        for message in consumer.consume(_BATCH, _WAIT_S):
            partition, error = (message.topic(), message.partition()), message.error()
            if error is None:
                position[partition] = message.offset() + 1
                key, value, headers = message.key() or b"", message.value() or b"", with_values(message.headers())
                found.append(CommittedRecord(*partition, message.offset(), key, value, headers))
            elif error.code() == _END:
                position[partition] = message.offset()
                self._unread.discard(partition)
            elif not error.retriable():
                if partition in self._first:  # its records may be deleted: begin with the first one that is there
                    position[partition] = self._first[partition]
                failure = f"{partition[0]}[{partition[1]}]: {error.str()}"
        if found:
            self._on_records(found)
        self._position |= position
        if failure:
            raise Unreachable(failure)
        self._presence.ask(consumer, next(iter(self._first))[0])
        if not self._unread:
            self.behind = self._presence.problem
            if not self.loaded:
                self.loaded = True
                self._on_loaded()
            self._tell_waiting()

    def _tell_waiting(self) -> None:
        for _ in range(len(self._waiting)):
            ends, call = self._waiting.popleft()
            if all(self._position[partition] >= end for partition, end in ends.items()):
                call()
            else:
                self._waiting.append((ends, call))

    def on_error(self, error: Exception) -> None:
        """See `ConsumerThread`."""
        self.behind = readable(error)
        super().on_error(error)
