"""The reads and changes that the event loop requests from the writer's thread, mostly for the uplink."""

import contextlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from fogline.codec import Replay, chain_of, decode_event, encode_event
from fogline.errors import Poison
from fogline.event import Event, Lane, TimeQuality, parse_rfc3339
from fogline.gap import GAP_CONTENT_TYPE, Gap, GapReason, above
from fogline.hello import Own
from fogline.ledger import Counts
from fogline_edge.boot import moment
from fogline_edge.outbox.drop_oldest import WHY
from fogline_edge.outbox.expiry import expire
from fogline_edge.outbox.group import Group
from fogline_edge.outbox.quarantine import EventKey, QuarantinedEvent
from fogline_edge.outbox.queries import SQL
from fogline_edge.outbox.store import OutboxStore
from fogline_edge.outbox.stored_body import pack_body
from fogline_edge.outbox.streams import DroppedRange, EventRecord, Stream, event_place

MOVED_ROWS, MOVED_BYTES = 500, 1024 * 1024
"""The most that one step of `reopen` moves, but for one row of any size: arrivals wait for it, and the log grows by it."""

MAX_BEHIND = 4
"""The most closed streams of a lane that may wait at a time. After one more outage the open stream is not split."""


@dataclass(frozen=True, slots=True)
class StreamView:
    """State of a stream at one moment."""

    stream: str
    lane: Lane
    open: bool
    head: int
    settled: int
    counts: Counts


def pending(store: OutboxStore) -> list[StreamView]:
    """Return every stream that hello announces to the bridge."""
    streams = store.streams.pending()
    return [StreamView(each.stream, each.lane, each.open, each.head, each.settled, each.counts) for each in streams]


def own(store: OutboxStore, name: str, chain_sequence: int, now_ns: int) -> Own | None:
    """Return a stream's state for hello at `now_ns`, or None if there is none of that name."""
    try:
        stream = store.streams.get(name)
    except KeyError:
        return None
    settled, at_mark = store.commit_id_at(stream, stream.settled), store.commit_id_at(stream, chain_sequence)
    chain_at_mark = chain_of(at_mark).hex() if at_mark else None
    chain = chain_of(settled).hex() if settled else ""
    return Own(stream.settled, chain, stream.head, chain_at_mark, stream.dropped.upto, _waited_ms(store, stream, now_ns))


def _waited_ms(store: OutboxStore, stream: Stream, now_ns: int) -> int:
    """Return the age of the first unsettled event, 0 for unknown. A gap record in front may be younger than what follows."""
    waited_ms = 0
    for row in store.events(stream, stream.settled, 2):
        try:
            event = decode_event(row.body)
            recorded_ns = parse_rfc3339(event.recordedtime)
        except (Poison, ValueError):
            continue
        if event.timequality is not TimeQuality.UNSYNCED:
            waited_ms = max(waited_ms, (now_ns - recorded_ns) // 1_000_000)
    return waited_ms


def read(store: OutboxStore, name: str, after: int, limit: int, limit_bytes: int | None) -> tuple[list[EventRecord], bool]:
    """Return at most `limit` rows above `after`, with at most `limit_bytes` of bodies; at least one row if there is one.

    Also returns True if the writer passes on the rows behind these by itself (see `LiveRows`).
    """
    stream = store.streams.get(name)
    remembered = stream.remembered(after, limit)
    if remembered is not None:
        rows = _within(remembered, limit_bytes)
    else:
        with contextlib.closing(store.events(stream, after, limit)) as found:
            rows = _within(found, limit_bytes)
    if stream.lane in store.drops_expired:
        rows = expire(store, stream, rows)
    if rows and rows[0].sequence == stream.dropped.upto:
        rows[0] = _gap_above(store, stream, rows[0], after)
        stream.dropped.send(after)
    if rows:
        store.handed[name] = max(rows[-1].sequence, store.handed.get(name, 0))
    last = rows[-1].sequence if rows else after
    live = last == stream.head and stream.lane not in store.drops_expired
    if live:
        store.follow(stream)
    return rows, live


def leave(store: OutboxStore, name: str | None = None) -> None:
    """Pass on no more rows of a stream, or of any: nobody sends them as they come."""
    if name is None:
        store.live.clear()
    else:
        store.live.pop(name, None)


def _within(rows: Iterable[EventRecord], limit_bytes: int | None) -> list[EventRecord]:
    """Return the first rows whose bodies fit into `limit_bytes`, reading no more than one row beyond."""
    taken: list[EventRecord] = []
    total = 0
    for row in rows:
        total += len(row.body) + 1
        if taken and limit_bytes is not None and total > limit_bytes:
            break
        taken.append(row)
    return taken


def _gap_above(store: OutboxStore, stream: Stream, row: EventRecord, after: int) -> EventRecord:
    """Return the gap record of the dropped rows as it is sent: for the sequences above `after` only."""
    try:
        (event,) = above([decode_event(row.body)], after)
    except Poison:
        event = store.gap_records.make(Gap(GapReason.DROPPED, after + 1, row.sequence, WHY), stream)
    return row._replace(body=encode_event(event), spans=row.sequence - after)


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
    event = _gap_in_place(store, stream, rejected, row.body, GapReason.QUARANTINED)
    with store.transaction():
        store.quarantine.add(_quarantined(key, rejected, row.body))
        store.connection.execute(SQL["replace_body"], (encode_event(event), event_place(*key)))
        stream.counts.quarantined += 1
        stream.forget_tail()
        store.streams.changed(stream)
    return True


def empty_quarantine(store: OutboxStore, keys: Sequence[EventKey], *, resend: bool) -> int:
    """Call `Quarantine.resend` or `Quarantine.delete` in a transaction of its own."""
    with store.transaction():
        return store.quarantine.resend(keys) if resend else store.quarantine.delete(keys)


def _quarantined(key: EventKey, rejected: RejectedEvent, body: bytes) -> QuarantinedEvent:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return QuarantinedEvent(key, rejected.condition, rejected.description, body, now)


def _is_gap(body: bytes) -> bool:
    try:
        return decode_event(body).content_type == GAP_CONTENT_TYPE
    except Poison:
        return False


def _gap_in_place(store: OutboxStore, stream: Stream, rejected: RejectedEvent, body: bytes, reason: GapReason) -> Event:
    """Return the gap record that replaces a row. It names the event if the row is readable."""
    try:
        former: Event | None = decode_event(body)
    except Poison:
        former = None
    event = (former.id, former.device) if former else (None, None)
    gap = Gap(reason, rejected.sequence, rejected.sequence, f"{rejected.condition} {rejected.description}".strip(), *event)
    return store.gap_records.make(gap, stream, replayed=reason is GapReason.DAMAGED)


def reopen(store: OutboxStore, name: str, upto: int, why: str) -> bool:
    """Move some of the rows above `upto` to a new stream of the lane, with new sequences and the same event ids.

    Returns True if rows are left: call it again. After a kill between two calls, the next hello finds the same and goes on.
    """
    with store.transaction():
        old = store.streams.get(name)
        store.accept(name, min(upto, old.head))
        new = store.streams.open(old.lane, why) if old.open else store.streams.of_lane(old.lane)
        commit_id = store.commit_id_at(old, old.settled) or b""
        rows = _within(store.events(old, old.settled, MOVED_ROWS), MOVED_BYTES)
        if rows:
            old.settled, commit_id = rows[-1].sequence, rows[-1].commit_id
        store.delete_events(old, old.settled)  # first: a file that is nearly full has no room for two copies
        for each in rows:
            new.head += 1
            new.counts.stored += 1
            row = (event_place(new.number, new.head), each.commit_id, pack_body(_moved(store, new, each.body)), None)
            store.connection.execute(SQL["insert_event"], row)
        old.purged, old.purged_commit_id = old.settled, commit_id
        old.dropped = DroppedRange()
        old.forget_tail()
        store.streams.changed(old)
        store.streams.changed(new)
    return old.backlog > 0


def split_backlog(store: OutboxStore, lanes: frozenset[Lane], events: int) -> list[Stream]:
    """Close the stream of each lane with more than `events` waiting, and open another one for new events.

    A closed stream ends with a statement of its counts and is sent after the open one. A lane keeps at most `MAX_BEHIND`
    closed streams. Returns the streams that were closed.
    """
    behind = Counter(each.lane for each in store.streams.pending() if not each.open)
    long = [each for each in store.streams.opened() if each.lane in lanes and each.head - each.kept_after > events]
    long = [each for each in long if behind[each.lane] < MAX_BEHIND]
    if long:
        with store.transaction():
            group = Group(store.age.ms)
            for stream in long:
                store.ingest.append_statement(group, stream, moment(store.clock), closed=True)
            store.ingest.write(group)
            for stream in long:
                store.streams.open(stream.lane, "newest first")
        store.ingest.committed()
    return long


def _moved(store: OutboxStore, new: Stream, body: bytes) -> bytes:
    """Return an event as the newest row of its new stream. If it is unreadable, quarantine it and return a gap record."""
    try:
        return Replay(body).encode(new.stream, new.head)
    except Poison as error:
        rejected = RejectedEvent(new.stream, new.head, "damaged", str(error))
        store.quarantine.add(_quarantined((new.number, new.head), rejected, body))
        new.counts.quarantined += 1
        return encode_event(_gap_in_place(store, new, rejected, body, GapReason.DAMAGED))
