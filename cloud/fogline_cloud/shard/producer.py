"""The transactional Kafka producer of one shard. Used by one thread, for one ownership of the shard.

Every method raises `Unreachable` on any Kafka error. The caller must then destroy the producer, and must not conclude anything
about the written records, not even from an abort: librdkafka cannot tell an aborted commit from a committed one.
"""

import time

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from fogline.errors import Unreachable
from fogline.process.crash_points import CrashPoint, crash_point
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.clients import KafkaClients, mapped
from fogline_cloud.kafka.hanging_transactions import Markers
from fogline_cloud.kafka.records import Headers
from fogline_cloud.shard.pace import LIMIT_S

SENT_S = 0.05
"""Time in which librdkafka sends AddPartitionsToTxn after a partition's first record. If the producer goes in that moment,
librdkafka 2.16.0 aborts the process (rdkafka_txnmgr.c: `txn_req_cnt > 0`)."""
RECORD_BYTES = 100
"""What the headers of a record take about, compressed beside those of others."""


class ShardProducer:
    """One producer: `fence` first, then transactions, `destroy` last. The first record begins a transaction.

    `limit_s`: the time of each transaction, as it is when `fence` is called. `written_bytes`: of the open transaction.
    """

    def __init__(self, clients: KafkaClients, tenant: str, shard: int) -> None:
        self.tenant = tenant
        self.shard = shard
        self.markers = Markers(clients, {}, 0)
        self.limit_s = LIMIT_S
        self.written_bytes = 0
        self._clients = clients
        self._producer: Producer | None = None
        self._begun = False
        self._topics: set[str] = set()
        self._ends: dict[str, int] = {}

    def fence(self) -> None:
        """Create the producer and fence the former owner of the shard (`init_transactions`)."""
        self._producer = self._clients.producer(topics.transactional_id(self.tenant, self.shard), int(self.limit_s * 1000))
        crash_point(CrashPoint.BEFORE_INIT_TRANSACTIONS)
        with mapped(f"taking shard {self.shard}"):
            self._producer.init_transactions(LIMIT_S * 2)

    def write(self, topic: str, value: bytes | None, key: bytes, headers: Headers | None = None) -> bool:
        """Write one record in the open transaction. Return False, and write nothing, if it is too large for the broker."""
        producer = self._producer
        assert producer is not None
        if not self._begun:
            with mapped(f"shard {self.shard}"):
                producer.begin_transaction()
            self._begun = True
        # A delivery callback runs Python code on librdkafka's behalf, so only the first record of each topic gets one.
        on_delivery = None if topic in self._topics else self._note_offset
        while True:
            try:  # positional: naming the parameters costs as much as a quarter of the call
                producer.produce(topic, value, key, self.shard, on_delivery, None, 0, headers)
            except BufferError:
                producer.poll(0.1)
            except KafkaException as error:
                if error.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE:
                    return False
                with mapped(topic):
                    raise
            else:
                self._topics.add(topic)
                self.written_bytes += len(value or b"") + RECORD_BYTES
                return True

    def serve_reports(self) -> None:
        """Serve the delivery reports that have arrived, without waiting. `commit` serves the others."""
        if self._begun and self._producer is not None:
            self._producer.poll(0)

    def commit(self) -> frozenset[str] | None:
        """Commit the open transaction. Return its topics, or None without one. Settle nothing until `visible` returns True."""
        if not self._begun:
            return None
        assert self._producer is not None
        with mapped(f"commit on shard {self.shard}"):
            self._producer.commit_transaction(self.limit_s)
        self._begun = False
        self.written_bytes = 0
        ends, self._ends = self._ends, {}
        self._topics.clear()
        self.markers = Markers(self._clients, {(topic, self.shard): end for topic, end in ends.items()}, self.limit_s)
        return frozenset(ends)

    def visible(self) -> bool:
        """Return True if `read_committed` consumers see the last committed transaction."""
        if not self.markers.seen():
            return False
        self.serve_reports()
        for (topic, _), end in self.markers.stable.items():
            # The last stable offset cannot pass a record of our own open transaction, unless another producer ended it.
            if topic in self._ends and end >= self._ends[topic]:
                raise Unreachable(f"{topic}[{self.shard}]: another producer has ended the open transaction")
        return True

    def destroy(self) -> None:
        """Discard the producer and its open transaction. Never waits for Kafka."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()
            time.sleep(SENT_S)

    def _note_offset(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._ends[message.topic()] = message.offset() + 1
