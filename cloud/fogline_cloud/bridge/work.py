"""What comes from connections for a shard: gateways' batches, and events of clients that number nothing."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from fogline.amqp.outcome import ACCEPTED, DECODE_ERROR, MODIFIED, RELEASED, UNKNOWN_STREAM, Outcome, rejected
from fogline.codec import Batch, Range, read_batch
from fogline.errors import Poison
from fogline.event import Event, Lane
from fogline.gap import above
from fogline.message import Message
from fogline_cloud import topics
from fogline_cloud.bridge.admission import Covered, Duplicate, Foreign, Hole, Produce
from fogline_cloud.bridge.holding import Holding
from fogline_cloud.bridge.isolation import isolated
from fogline_cloud.commands.record import Record
from fogline_cloud.commands.reply_lane import Judged, judge


@dataclass(slots=True)
class Submission:
    """A batch from a gateway. `answer` is called once, on the shard's thread."""

    span: Range
    message: Message
    answer: Callable[[Outcome], None]

    @property
    def size(self) -> int:
        """How many events it holds."""
        return self.span.last - self.span.first + 1

    @property
    def urgent(self) -> bool:
        """Somebody waits for a reply."""
        return self.span.lane is Lane.REPLY

    def perform(self, holding: Holding) -> Callable[[], None]:
        """Admit, produce; the answer is given after the commit."""
        outcome, records = self._admit(holding)
        if records:
            holding.tell(records)

        def committed() -> None:
            if records:
                holding.tell(records)
            self.answer(outcome)

        return committed

    def give_up(self) -> None:
        """Not tried, or unknown: the gateway sends again what is not accepted."""
        self.answer(RELEASED)

    def _admit(self, holding: Holding) -> tuple[Outcome, list[Record]]:
        match holding.admission.admit(self.span):
            case Produce(skip):
                return self._produce(holding, skip)
            case Duplicate() | Covered():
                self._count_duplicates(holding, self.size)
                return ACCEPTED, []
            case Hole():
                return MODIFIED, []
            case Foreign(why):
                return rejected(UNKNOWN_STREAM, why), []

    def _produce(self, holding: Holding, skip: int) -> tuple[Outcome, list[Record]]:
        span = self.span
        try:
            batch, replies = self._read(holding, skip)
            refused = holding.log.produce(batch, span) + len(replies.audits)
        except Poison as error:
            return rejected(DECODE_ERROR, str(error)), []
        holding.admission.wrote(span, refused)
        holding.counters.landed += len(batch.objects)
        if skip:
            self._count_duplicates(holding, skip)
        for device in holding.routes.learn(span.gateway, batch):
            holding.log.write_route(device, span.gateway)
        for record in replies.records:
            holding.registry.put(record)
            holding.log.write_command(record)
        for audit in holding.audits.select(replies.audits, time.monotonic()):
            holding.log.write_audit(audit)
        return ACCEPTED, replies.records

    def _read(self, holding: Holding, skip: int) -> tuple[Batch, Judged]:
        """Read the batch without its first `skip` sequences, and judge replies. Changes nothing. Raises `Poison`."""
        span = self.span
        with isolated(f"the batch {span.first}..{span.last} of stream {span.stream} of gateway {span.gateway}"):
            batch = read_batch(span, self.message)
            if skip:
                batch = Batch.of(above(batch.events(), span.first + skip - 1))
            if span.lane is not Lane.REPLY:
                return batch, Judged()
            now_ms = time.time_ns() // 1_000_000
            known, issued, tenant = holding.registry.get, holding.issued, holding.log.tenant
            replies = judge(batch.events(), known, issued=issued, tenant=tenant, now_ms=now_ms)
            return (Batch.of(replies.events) if replies.audits else batch), replies

    def _count_duplicates(self, holding: Holding, events: int) -> None:
        span = self.span
        holding.counters.duplicate += events
        holding.admission.count_duplicates(span, events)
        if (known := holding.admission.known.get((span.gateway, span.stream))) is not None:
            holding.dirty[span.gateway, span.stream] = known


@dataclass(slots=True)
class Report:
    """One event of a client that numbers nothing. `answer` is called once, on the shard's thread."""

    event: Event
    answer: Callable[[Outcome], None]
    size: int = 1
    urgent: bool = False

    def perform(self, holding: Holding) -> Callable[[], None]:
        """Produce it; accepted after the commit."""
        if not holding.log.produce_report(topics.of_lane(self.event.lane, self.event.tenant), self.event):
            outcome = rejected("amqp:link:message-size-exceeded", "too big for Kafka")
            return lambda: self.answer(outcome)
        holding.counters.loose += 1
        return lambda: self.answer(ACCEPTED)

    def give_up(self) -> None:
        """Unknown: the client sends again."""
        self.answer(RELEASED)
