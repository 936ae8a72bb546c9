"""The Kafka side of one shard: fence, transactions, checkpoint. Used by one thread.

Every method raises `Unreachable` on any error of Kafka; then the object is to be destroyed, and nothing may be
concluded about what landed, not even from an abort.
"""

import logging
import time
from collections.abc import Callable, Sequence

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from fogline.codec import Batch, Range, event_of
from fogline.crash import CrashPoint, crash_point
from fogline.errors import Unreachable
from fogline.event import Event
from fogline.gap import Gap, GapReason, gap_event
from fogline.notice import notice_event
from fogline_cloud import topics
from fogline_cloud.bridge.admission import Known
from fogline_cloud.bridge.checkpoint import Entry, Owner, RouteEntry, owner_entry, position_entry, route_entry, stream_entry
from fogline_cloud.bridge.hanging import Markers, find_hanging
from fogline_cloud.bridge.isolation import isolated
from fogline_cloud.bridge.recovery import Recovered, recover
from fogline_cloud.commands.record import Audit, Record, audit_of, encode
from fogline_cloud.commands.reply_lane import MAX_SHOWN
from fogline_cloud.kafka import TRANSACTION_TIMEOUT_MS, KafkaClients, mapped
from fogline_cloud.records import Record as KafkaRecord
from fogline_cloud.records import record_of, record_of_object

_Told = Callable[[KafkaError | None, Message], None]
_LIMIT_S = TRANSACTION_TIMEOUT_MS / 1000
_TAKEN_IN = "Kafka left a transaction open; this record's transaction has taken it in"

_NOBODY = b"-"
"""The key of a tombstone that deletes nothing: no command has this id."""

_log = logging.getLogger("fogline.shard")


class TransactionLog:
    """One life of one shard's producer: `take` once, then transactions, `destroy` at the end.

    `moved`: the last checkpoint's position is behind what is committed.
    """

    def __init__(self, clients: KafkaClients, tenant: str, shard: int) -> None:
        self._clients = clients
        self._tenant = tenant
        self._shard = shard
        self._raw = frozenset(topics.raw_topics(tenant))
        self._producer: Producer | None = None
        self._begun = False
        self._position: dict[str, int] = {}
        self._awaited: set[str] = set()
        self._written: dict[str, int] = {}
        self.markers = Markers(clients, {}, 0)
        self.moved = False

    @property
    def tenant(self) -> str:
        """Whose events are taken."""
        return self._tenant

    def take(self, owner: Owner) -> Recovered:
        """Fence the former owner, read what is committed, publish the new owner (the first transaction)."""
        producer = self._clients.producer(f"fogline-{self._tenant}-{self._shard}")
        self._producer = producer
        crash_point(CrashPoint.BEFORE_INIT_TRANSACTIONS)
        with mapped(f"taking shard {self._shard}"):
            producer.init_transactions(_LIMIT_S * 2)
        self._take_in_hanging(owner)
        recovered = recover(self._clients, self._tenant, self._shard)
        self._position = dict(recovered.position)
        self.moved = recovered.position != recovered.checkpoint.position
        self._write_entries([owner_entry(owner)])
        self.commit()
        return recovered

    def _take_in_hanging(self, owner: Owner) -> None:
        """Commit what Kafka decided to commit, but never did, of a former life of this shard's producer.

        It may hold events that were settled, so it must not be aborted. A transaction of the same producer id that writes
        to the partition ends with it: one marker commits both.
        """
        raw = topics.raw_topics(self._tenant)
        checkpoint, commands, audit = topics.checkpoint(self._tenant), topics.commands(self._tenant), topics.audit(self._tenant)
        hanging = find_hanging(self._clients, [(topic, self._shard) for topic in (*raw, checkpoint, commands, audit)])
        for topic, _ in hanging:
            _log.warning("%s[%d]: a transaction of before hangs at the broker: it is committed now", topic, self._shard)
            if topic == checkpoint:
                self._write_entries([owner_entry(owner)])
            elif topic in raw:
                self._write_record(topic, record_of(notice_event(_TAKEN_IN, tenant=self._tenant, now_ns=time.time_ns())))
            else:
                self._write_plain(topic, [(_NOBODY, None)])
        self.commit()

    def produce(self, batch: Batch, span: Range) -> int:
        """Write the events of a batch into the open transaction; returns how many were replaced by gap records.

        Raises `Poison`, before anything is written, if one of them cannot be made a record.
        """
        refused = 0
        topic = topics.of_lane(span.lane, self._tenant)
        ours, last, write, places = self._tenant, span.last, self._write_record, batch.places
        with isolated(f"the batch {span.first}..{span.last} of stream {span.stream} of gateway {span.gateway}"):
            records = [
                record_of_object(event, *places[event.source], data, span.chain if event.sequence == last else None)
                for event, data in zip(batch.objects, batch.data, strict=True)
            ]
        for event, data, record in zip(batch.objects, batch.data, records, strict=True):
            tenant, device = places[event.source]
            if tenant == ours and write(topic, record):
                continue
            refused += 1
            chain = span.chain if event.sequence == last else None
            write(topic, record_of(self._refusal(event_of(event, tenant, device, data)), chain))
        return refused

    def produce_report(self, topic: str, event: Event) -> bool:
        """Write an event that no gateway numbered; `False` if it is too big for the broker."""
        return self._write_record(topic, record_of(event))

    def _refusal(self, event: Event) -> Event:
        """The gap record that stands for an event which may not, or cannot, be a record."""
        foreign = event.tenant != self._tenant
        gap = Gap(
            GapReason.REFUSED,
            event.sequence,
            event.sequence,
            f"tenant {event.tenant} is not served here" if foreign else "too big for Kafka",
            event.id[:MAX_SHOWN],
            None if foreign else event.device,
            event.content_type[:MAX_SHOWN],
        )
        return gap_event(
            gap, tenant=self._tenant, gateway=event.gateway, stream=event.stream, lane=event.lane, now_ns=time.time_ns()
        )

    def _write_record(self, topic: str, record: KafkaRecord) -> bool:
        """Produce one record; `False` if it is too big for the broker."""
        producer = self._begin()
        told = None if topic in self._awaited else self._note_offset
        while True:
            try:  # by place: naming the parameters costs as much as a quarter of the call
                producer.produce(topic, record.value, record.key, self._shard, told, None, 0, record.headers)
            except BufferError:
                producer.poll(0.1)
            except KafkaException as error:
                if error.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE:
                    return False
                with mapped(topic):
                    raise
            else:
                if told is not None:
                    self._awaited.add(topic)
                return True

    def _note_offset(self, error: KafkaError | None, message: Message) -> None:
        """Told of a topic's first record in a transaction, and of no other: each such call takes Python from all threads."""
        if error is None:
            self._written[message.topic()] = message.offset() + 1

    def write_checkpoint(self, known: list[Known]) -> None:
        """Say, within the open transaction, what the commits before it have brought, which are readable."""
        self._move_position()
        self.moved = False
        self._write_entries([*(stream_entry(each) for each in known), position_entry(self._position)])

    def write_route(self, device: str, gateway: str) -> None:
        """Say, within the open transaction, which gateway reaches a device."""
        self._write_entries([route_entry(device, RouteEntry(gateway, time.time_ns() // 1_000_000))])

    def write_command(self, record: Record) -> None:
        """Write a command's newest record, and the decision to the audit."""
        self._write_plain(topics.commands(self._tenant), [(record.id.encode(), encode(record))])
        self.write_audit(audit_of(record))

    def write_audit(self, audit: Audit) -> None:
        """Write a decision to the audit."""
        self._write_plain(topics.audit(self._tenant), [(audit.command.encode(), encode(audit))])

    def _write_entries(self, entries: list[Entry]) -> None:
        self._write_plain(topics.checkpoint(self._tenant), entries)

    def _write_plain(self, topic: str, entries: Sequence[tuple[bytes, bytes | None]]) -> None:
        producer = self._begin()
        for key, value in entries:
            told = None if topic in self._awaited else self._note_offset
            with mapped(topic):
                producer.produce(topic, value, key, partition=self._shard, on_delivery=told)
            self._awaited.add(topic)

    def _begin(self) -> Producer:
        assert self._producer is not None
        if not self._begun:
            with mapped(f"shard {self._shard}"):
                self._producer.begin_transaction()
            self._begun = True
        return self._producer

    def take_answers(self) -> None:
        """Serve what Kafka has answered so far, without waiting. The commit serves the rest."""
        if self._begun and self._producer is not None:
            self._producer.poll(0)

    def commit(self) -> bool:
        """Commit what was written; `False` if there was nothing. It is not to be relied on before `markers` are seen."""
        if not self._begun:
            return False
        assert self._producer is not None
        with mapped(f"commit on shard {self._shard}"):
            self._producer.commit_transaction(_LIMIT_S)
        self._begun = False
        ends = {(topic, self._shard): end for topic, end in self._written.items()}
        self._move_position()
        self.markers = Markers(self._clients, ends, _LIMIT_S)
        self.moved = self.moved or not self._raw.isdisjoint(self._written)
        self._written.clear()
        self._awaited.clear()
        return True

    def readable(self) -> bool:
        """Whether readers of committed records see what was committed last. Raises `Unreachable`."""
        if not self.markers.seen():
            return False
        self.take_answers()
        for (topic, _), end in self.markers.stable.items():
            if topic in self._written and end >= self._written[topic]:
                raise Unreachable(f"{topic}[{self._shard}]: somebody else has ended the open transaction")
        return True

    def _move_position(self) -> None:
        self._position |= {topic: end for (topic, _), end in self.markers.stable.items() if topic in self._raw}

    def destroy(self) -> None:
        """Throw the producer away, with whatever is in its open transaction. Never waits for Kafka."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()
            del producer
