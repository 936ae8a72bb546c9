"""The records that a shard writes into its open Kafka transaction. Used by one thread. Raises as `ShardProducer`."""

import contextlib
import logging
import time
from collections.abc import Iterable, Iterator, Mapping

from fogline.errors import FoglineError, Poison, Unreachable
from fogline.events.bridge_notice import notice_event
from fogline.events.codec import Batch, Range, event_of
from fogline.events.event import Event
from fogline.events.gap import Gap, GapReason, gap_event
from fogline_cloud.audit.chain import AuditLink, append
from fogline_cloud.audit.record import AuditRecord
from fogline_cloud.commands.kafka_form import response_headers
from fogline_cloud.commands.record import CommandRecord, audit_of, encode
from fogline_cloud.commands.reply_lane import MAX_SHOWN
from fogline_cloud.devices.record import DeviceKey
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.kafka.hanging_transactions import find_hanging
from fogline_cloud.kafka.records import Headers, record_of, record_of_object
from fogline_cloud.shard.checkpoint import Entry, Layout, LayoutChanged, RouteEntry, ShardOwner, entry_of, route_entry
from fogline_cloud.shard.producer import ShardProducer
from fogline_cloud.shard.recovery import Recovered, read_layout, recover

_NOTICE = "Kafka left a transaction open; this record's transaction has taken it in"
_NOTHING = b"-"  # the key of a tombstone that deletes nothing, because no command or device has this name

_NO_HEADERS: Mapping[int, Headers] = {}

_log = logging.getLogger("fogline.shard")


class ShardWriter:
    """Writes with `producer`, which the caller commits and destroys. `take` comes first.

    `layout`: the number of shards by which this process knows what belongs to the shard. `audit_end`: the end of the chain of
    audit records.
    """

    def __init__(self, clients: KafkaClients, producer: ShardProducer, layout: Layout) -> None:
        self.producer = producer
        self.layout = layout
        self.tenant = producer.tenant
        self.audit_end = AuditLink()
        self._clients = clients

    def take(self, owner: ShardOwner) -> Recovered:
        """Take the shard: fence the former owner, read the committed state, and write the new owner's entry.

        Raises `LayoutChanged` if the tenant has another number of shards. This is looked at after the fence, because whoever
        changes the number writes it before he fences (docs/decisions/0067).
        """
        self.producer.fence()
        found = read_layout(self._clients, self.tenant) or self.layout
        if found != self.layout:
            raise LayoutChanged(found)
        self._commit_hanging(owner)
        recovered = recover(self._clients, self.tenant, self.producer.shard)
        self.audit_end = recovered.audit_end
        self.write_entries([entry_of(owner)])
        self.producer.commit()
        return recovered

    def _commit_hanging(self, owner: ShardOwner) -> None:
        """Commit the former owner's transactions that Kafka decided to commit, but did not mark (docs/decisions/0015).

        They must not be aborted, because they may hold settled events. A new transaction of the same producer id that writes
        to the partition ends them too: one marker commits both.
        """
        raw = topics.raw_topics(self.tenant)
        checkpoint = topics.checkpoint(self.tenant)
        own = (topics.commands, topics.audit, topics.devices, topics.credentials)
        others = [each(self.tenant) for each in own]
        shard = self.producer.shard
        hanging = find_hanging(self._clients, [(topic, shard) for topic in (*raw, checkpoint, *others)])
        for topic, _ in hanging:
            _log.warning("%s[%d]: the broker holds a transaction without a marker; the bridge commits it now", topic, shard)
            if topic == checkpoint:
                self.write_entries([entry_of(owner)])
            elif topic in raw:
                self.write_event(topic, notice_event(_NOTICE, tenant=self.tenant, now_ns=time.time_ns()))
            else:
                self._write_entry(topic, _NOTHING, None)
        self.producer.commit()

    def write_batch(self, batch: Batch, span: Range, headers: Mapping[int, Headers] = _NO_HEADERS) -> int:
        """Write a batch. Return the number of events replaced by gap records. Raises `Poison` before anything is written.

        `headers`: further ones, by sequence.
        """
        replaced = 0
        topic = topics.of_lane(span.lane, self.tenant)
        own, last, write, devices = self.tenant, span.last, self.producer.write, batch.devices
        with isolated(f"the batch {span.first}..{span.last} of stream {span.stream} of gateway {span.gateway}"):
            records = [
                record_of_object(event, *devices[event.source], data, span.chain if event.sequence == last else None)
                for event, data in zip(batch.objects, batch.data, strict=True)
            ]
        for event, data, record in zip(batch.objects, batch.data, records, strict=True):
            tenant, device = devices[event.source]
            more = headers.get(event.sequence, ())
            if tenant == own and write(topic, record.value, record.key, [*record.headers, *more] if more else record.headers):
                continue
            replaced += 1
            chain = span.chain if event.sequence == last else None
            self.write_event(topic, self._gap_for(event_of(event, tenant, device, data)), chain)
        return replaced

    def write_event(self, topic: str, event: Event, chain: bytes | None = None) -> bool:
        """Write one event. Return False if it is too large for the broker."""
        record = record_of(event, chain)
        return self.producer.write(topic, record.value, record.key, record.headers)

    def write_response(self, event: Event, failure_headers: Mapping[str, str]) -> None:
        """Write the response of a bridge to a command of Kafka."""
        record = record_of(event)
        headers = [*record.headers, *response_headers(event, failure_headers)]
        if not self.producer.write(topics.command_response(self.tenant), record.value, record.key, headers):
            _log.error("the response to command %s is too large for Kafka", event.commandid)

    def write_entries(self, entries: Iterable[Entry]) -> None:
        """Write checkpoint entries."""
        for key, value in entries:
            self._write_entry(topics.checkpoint(self.tenant), key, value)

    def write_route(self, device: str, gateway: str, since_ms: int) -> None:
        """Write the gateway that reaches a device."""
        self.write_entries([route_entry(device, RouteEntry(gateway, since_ms))])

    def write_command(self, record: CommandRecord) -> None:
        """Write a command's newest record, and the decision to the audit topic."""
        self._write_entry(topics.commands(self.tenant), record.id.encode(), encode(record))
        self.write_audit(audit_of(record))

    def write_device(self, key: DeviceKey, value: bytes | None) -> None:
        """Write a record of a device; `None` deletes it."""
        self._write_entry(topics.devices(self.tenant), key.encode(), value)

    def write_keys(self, device: str, sealed: bytes | None) -> None:
        """Write the sealed keys of a device; `None` deletes them."""
        self._write_entry(topics.credentials(self.tenant), device.encode(), sealed)

    def write_audit(self, record: AuditRecord) -> None:
        """Write a decision to the audit topic, behind the one before it."""
        body, self.audit_end = append(self.audit_end, record)
        self._write_entry(topics.audit(self.tenant), (record.command or record.who or "-").encode(), body)

    def _gap_for(self, event: Event) -> Event:
        """Return the gap record for an event of another tenant, or one that is too large for Kafka."""
        foreign = event.tenant != self.tenant
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
            gap, tenant=self.tenant, gateway=event.gateway, stream=event.stream, lane=event.lane, now_ns=time.time_ns()
        )

    def _write_entry(self, topic: str, key: bytes, value: bytes | None) -> None:
        if not self.producer.write(topic, value, key):
            raise Unreachable(f"{topic}: the record {key!r} is too large for Kafka")


@contextlib.contextmanager
def isolated(what: str) -> Iterator[None]:
    """Raise `Poison` in place of any error that is not a `FoglineError`. `what` names the input. For code without effects."""
    try:
        yield
    except FoglineError:
        raise
    except Exception as error:
        _log.exception("%s is refused after an unexpected error", what)
        raise Poison("malformed", f"{what} cannot be processed: {type(error).__name__}: {error}") from error
