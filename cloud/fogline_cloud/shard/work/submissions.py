"""Work that AMQP deliveries cause: batches of gateways, and events of clients without sequences."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from fogline.amqp.outcome import ACCEPTED, DECODE_ERROR, INTERNAL_ERROR, MODIFIED, RELEASED, UNKNOWN_STREAM, Outcome, rejected
from fogline.errors import Poison
from fogline.events.codec import Batch, Range, read_batch
from fogline.events.event import Event, Lane
from fogline.events.gap import above
from fogline.message import Message
from fogline_cloud.commands.record import CommandRecord
from fogline_cloud.commands.reply_lane import CheckedReplies, check_replies
from fogline_cloud.devices.record import encode_sighting, seen_key
from fogline_cloud.kafka import topics
from fogline_cloud.shard.admission import Covered, Duplicate, Foreign, Hole, Produce
from fogline_cloud.shard.foreign_devices import refuse_foreign
from fogline_cloud.shard.owned_shard import Linger, OwnedShard
from fogline_cloud.shard.shard_writer import isolated
from fogline_cloud.shard.sightings import abouts, reported_states
from fogline_cloud.shard.work.device_changes import write_about, write_reported
from fogline_cloud.shard.work.land_trace import LandTrace

_LINGER = {Lane.REPLY: Linger.NONE, Lane.ALARM: Linger.SHORT}


@dataclass(slots=True)
class GatewayBatch:
    """A batch from a gateway. `settle` is called once, on the shard's thread. `trace`: None if nothing is traced."""

    span: Range
    message: Message
    settle: Callable[[Outcome], None]
    trace: LandTrace | None = None

    @property
    def size(self) -> int:
        """The number of events."""
        return self.span.last - self.span.first + 1

    @property
    def linger(self) -> Linger:
        """That of the lane."""
        return _LINGER.get(self.span.lane, Linger.FULL)

    def perform(self, owned: OwnedShard) -> Callable[[], None]:
        """Admit and write the batch. The returned callback settles it."""
        outcome, records = self._admit(owned)

        def committed() -> None:
            if records:
                owned.on_commands(records)
            self.settle(outcome)
            if self.trace is not None and outcome == ACCEPTED:
                self.trace.landed(topics.of_lane(self.span.lane, owned.writer.tenant), owned.writer.producer.shard)

        return committed

    def give_up(self) -> None:
        """Release the batch: it may or may not be committed, and the gateway sends again all that is not accepted."""
        self.settle(RELEASED)

    def refuse(self, why: str) -> None:
        """Reject the batch: its gateway divides it, and sets the event aside at which the bridge fails."""
        self.settle(rejected(INTERNAL_ERROR, why))

    def _admit(self, owned: OwnedShard) -> tuple[Outcome, list[CommandRecord]]:
        match owned.admission.admit(self.span):
            case Produce(skip):
                return self._write(owned, skip)
            case Duplicate() | Covered():
                self._count_duplicates(owned, self.size)
                return ACCEPTED, []
            case Hole():
                return MODIFIED, []
            case Foreign(why):
                return rejected(UNKNOWN_STREAM, why), []

    def _write(self, owned: OwnedShard, skip: int) -> tuple[Outcome, list[CommandRecord]]:
        span = self.span
        try:
            batch, replies, foreign = self._read(owned, skip)
            refused = owned.writer.write_batch(batch, span, replies.headers) + foreign + replies.refused
        except Poison as error:
            return rejected(DECODE_ERROR, str(error)), []
        owned.admission.wrote(span, refused)
        owned.counters.landed += len(batch.objects)
        if self.trace is not None:
            self.trace.wrote(batch.objects)
        if skip:
            self._count_duplicates(owned, skip)
        for device in owned.routes.learn(span.gateway, batch):
            owned.writer.write_route(device, span.gateway, owned.routes.written_ms(device))
        now_ms = time.time_ns() // 1_000_000
        for device, sighting in owned.sightings.due(span.gateway, batch, owned.writer.tenant, now_ms):
            owned.writer.write_device(seen_key(device, span.gateway), encode_sighting(sighting))
        for device, state in reported_states(owned.sightings.table, batch, owned.writer.tenant, now_ms):
            write_reported(owned, device, span.gateway, state)
        for device, about in abouts(owned.sightings, span.gateway, batch, owned.writer.tenant, now_ms):
            write_about(owned, device, span.gateway, about)
        for record in replies.records:
            owned.registry.put(record)
            owned.writer.write_command(record)
        for audit in owned.audits.select(replies.audits, time.monotonic()):
            owned.writer.write_audit(audit)
        return ACCEPTED, replies.records

    def _read(self, owned: OwnedShard, skip: int) -> tuple[Batch, CheckedReplies, int]:
        """Read the batch without its first `skip` sequences, and check its devices and replies. Changes nothing.

        Returns the number of events of foreign devices too. Raises `Poison`.
        """
        span, tenant, now_ms = self.span, owned.writer.tenant, time.time_ns() // 1_000_000
        with isolated(f"the batch {span.first}..{span.last} of stream {span.stream} of gateway {span.gateway}"):
            batch = read_batch(span, self.message)
            if skip:
                batch = Batch.of(above(batch.events(), span.first + skip - 1))
            batch, audits, foreign = refuse_foreign(batch, span.gateway, tenant, owned.may_speak_for, now_ms)
            if span.lane is not Lane.REPLY:
                return batch, CheckedReplies(audits=audits), foreign
            known, issued = owned.registry.get, owned.issued
            replies = check_replies(batch.events(), known, issued=issued, tenant=tenant, now_ms=now_ms)
            batch = Batch.of(replies.events) if replies.refused or replies.headers else batch
            replies.audits += audits
            return batch, replies, foreign

    def _count_duplicates(self, owned: OwnedShard, events: int) -> None:
        owned.counters.duplicate += events
        if (state := owned.admission.count_duplicates(self.span, events)) is not None:
            owned.changes.streams[state.gateway, state.stream] = state


@dataclass(slots=True)
class ClientEvent:
    """One event of a client without sequences. `settle`, `trace`: see `GatewayBatch`."""

    event: Event
    settle: Callable[[Outcome], None]
    trace: LandTrace | None = None
    size: int = 1
    linger: Linger = Linger.SHORT

    def perform(self, owned: OwnedShard) -> Callable[[], None]:
        """Write the event. The returned callback accepts it."""
        topic = topics.of_lane(self.event.lane, self.event.tenant)
        if not owned.writer.write_event(topic, self.event):
            outcome = rejected("amqp:link:message-size-exceeded", "too big for Kafka")
            return lambda: self.settle(outcome)
        owned.counters.loose += 1
        sighting = owned.sightings.due_of(self.event.device, self.event.properties, time.time_ns() // 1_000_000)
        if sighting is not None:
            owned.writer.write_device(seen_key(self.event.device, ""), encode_sighting(sighting))
        if self.trace is not None:
            self.trace.wrote([self.event])

        def committed() -> None:
            self.settle(ACCEPTED)
            if self.trace is not None:
                self.trace.landed(topic, owned.writer.producer.shard)

        return committed

    def give_up(self) -> None:
        """Release the event: it may or may not be committed, and the client sends it again."""
        self.settle(RELEASED)

    def refuse(self, why: str) -> None:
        """Reject the event."""
        self.settle(rejected(INTERNAL_ERROR, why))
