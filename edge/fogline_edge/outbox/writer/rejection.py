"""Moves events that the bridge rejected to quarantine, each with a gap record in its place."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from fogline.errors import Poison
from fogline.events.codec import decode_event, encode_event
from fogline.events.event import Event
from fogline.events.gap import GAP_CONTENT_TYPE, Gap, GapReason
from fogline_edge.outbox.file.queries import SQL
from fogline_edge.outbox.rows.streams import Stream, event_place
from fogline_edge.outbox.writer.quarantine import EventKey, QuarantinedEvent
from fogline_edge.outbox.writer.store import OutboxStore


@dataclass(frozen=True, slots=True)
class RejectedEvent:
    """One event that the bridge will never take, with the condition and description of the AMQP outcome."""

    stream: str
    sequence: int
    condition: str
    description: str


def quarantine(store: OutboxStore, rejected: RejectedEvent) -> bool:
    """Move one row to quarantine and put a gap record in its place, in one transaction.

    Returns False if the row is a gap record already: a gap record is never quarantined.
    """
    stream = store.streams.get(rejected.stream)
    key = (stream.number, rejected.sequence)
    row = store.event(stream, rejected.sequence)
    if row is None or row.sequence != rejected.sequence:
        return True
    if _is_gap(row.body):
        return False
    event = gap_in_place(store, stream, rejected, row.body, GapReason.QUARANTINED)
    with store.transaction():
        store.quarantine.add(quarantined(key, rejected, row.body))
        store.connection.execute(SQL["replace_body"], (encode_event(event), event_place(*key)))
        stream.counts.quarantined += 1
        stream.forget_tail()
        store.streams.changed(stream)
    return True


def empty_quarantine(store: OutboxStore, keys: Sequence[EventKey], *, resend: bool) -> int:
    """Call `Quarantine.resend` or `Quarantine.delete` in a transaction of its own."""
    with store.transaction():
        return store.quarantine.resend(keys) if resend else store.quarantine.delete(keys)


def quarantined(key: EventKey, rejected: RejectedEvent, body: bytes) -> QuarantinedEvent:
    """Return the row of the quarantine for an event that is rejected now."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return QuarantinedEvent(key, rejected.condition, rejected.description, body, now)


def _is_gap(body: bytes) -> bool:
    try:
        return decode_event(body).content_type == GAP_CONTENT_TYPE
    except Poison:
        return False


def gap_in_place(store: OutboxStore, stream: Stream, rejected: RejectedEvent, body: bytes, reason: GapReason) -> Event:
    """Return the gap record that replaces a row. It names the event if the row is readable."""
    try:
        former: Event | None = decode_event(body)
    except Poison:
        former = None
    event = (former.id, former.device) if former else (None, None)
    gap = Gap(reason, rejected.sequence, rejected.sequence, f"{rejected.condition} {rejected.description}".strip(), *event)
    return store.gap_records.make(gap, stream, replayed=reason is GapReason.DAMAGED)
