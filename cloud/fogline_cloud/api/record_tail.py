"""Reads committed records of topics as they come, on a thread of its own, and hands them to the event loop."""

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping

from confluent_kafka import Consumer, KafkaError, TopicPartition

from fogline.errors import FoglineError, Unreachable
from fogline.process.log_throttle import LogThrottle
from fogline.process.loop_calls import call_soon
from fogline_cloud.committed_records import CommittedRecord, with_values
from fogline_cloud.kafka import KafkaClients, Partition, mapped

RETRY_S = 1.0
"""The pause before reading begins again after an error."""
_BATCH = 500

_log = logging.getLogger("fogline.api.kafka")
_log.addFilter(LogThrottle())


class RecordTail:
    """Reads partitions from their first record (True), or from their end on. `on_records` runs on the loop.

    `behind` tells why the records are not up to date, or is empty.
    """

    def __init__(
        self, clients: KafkaClients, partitions: Mapping[Partition, bool], on_records: Callable[[list[CommittedRecord]], None]
    ) -> None:
        self.behind = "it is reading what Kafka has"
        self.ready = asyncio.Event()
        """Set once all records were read that were there at the start."""
        self._clients = clients
        self._from_start = dict(partitions)
        self._position: dict[Partition, int] = {}
        self._on_records = on_records
        self._loop = asyncio.get_running_loop()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kafka tail", daemon=True)

    @property
    def alive(self) -> bool:
        """True while the thread runs."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def stop(self) -> None:
        """Stop reading. Blocks until that is done."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._read()
            except FoglineError as error:
                self.behind = str(error)
                _log.warning("reading begins again in %.0f s: %s", RETRY_S, error)
                self._stopping.wait(RETRY_S)

    def _read(self) -> None:
        """Read until there is an error, or the end. Positions survive an error, unless Kafka has deleted their records."""
        with mapped("reading the ends of topics"):
            bounds = self._clients.bounds(self._from_start, committed=True)
        waiting: set[Partition] = set()
        for partition, from_start in self._from_start.items():
            low, high = bounds[partition]
            first = self._position.get(partition, low if from_start else high)
            self._position[partition] = min(max(first, low), high)
            if self._position[partition] < high:
                waiting.add(partition)
        reader = self._clients.reader()
        try:
            reader.assign([TopicPartition(*partition, offset) for partition, offset in self._position.items()])
            while not self._stopping.is_set():
                if not waiting:
                    self._caught_up()
                self._take(reader, waiting, {partition: bounds[partition][1] for partition in waiting})
        finally:
            reader.close()

    def _caught_up(self) -> None:
        if self.behind:
            self.behind = ""
            call_soon(self._loop, self.ready.set)

    def _take(self, reader: Consumer, waiting: set[Partition], ends: Mapping[Partition, int]) -> None:
        found = []
        with mapped("reading"):
            messages = reader.consume(_BATCH, 0.2)
        for message in messages:
            partition = (message.topic(), message.partition())
            error = message.error()
            if error is None:
                self._position[partition] = message.offset() + 1
                headers = with_values(message.headers())
                key, value = message.key() or b"", message.value() or b""
                found.append(CommittedRecord(*partition, message.offset(), key, value, headers))
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's name for it
                self._position[partition] = max(self._position[partition], message.offset())
            elif not error.retriable():
                self._position.pop(partition, None)  # its records may be deleted: begin with the first one that is there
                raise Unreachable(f"{partition[0]}[{partition[1]}]: {error.str()}")
        if found:
            call_soon(self._loop, self._on_records, found)
        waiting -= {partition for partition, end in ends.items() if self._position.get(partition, 0) >= end}
