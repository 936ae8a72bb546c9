"""Moves events to new streams, and opens streams for new events before a backlog."""

import os
from collections import Counter

from fogline.errors import Poison
from fogline.events.codec import Replay, encode_event
from fogline.events.event import Lane
from fogline.events.gap import Gap, GapReason, Lost
from fogline_edge.machine.boot import moment
from fogline_edge.outbox.file.queries import SQL
from fogline_edge.outbox.rows.group import Group
from fogline_edge.outbox.rows.stored_body import pack_body
from fogline_edge.outbox.rows.streams import COMMIT_ID_BYTES, DroppedRange, Stream, event_place
from fogline_edge.outbox.writer.reading import within
from fogline_edge.outbox.writer.rejection import RejectedEvent, gap_in_place, quarantined
from fogline_edge.outbox.writer.store import OutboxStore

MOVED_ROWS, MOVED_BYTES = 500, 1024 * 1024
"""The most that one step of `reopen` moves, but for one row of any size: arrivals wait for it, and the log grows by it."""

MAX_BEHIND = 4
"""The most closed streams of a lane that may wait at a time. After one more outage the open stream is not split."""


LOST = "the bridge had accepted these events, and has them no more: its Kafka lost them, or it has another Kafka now"


def reopen(store: OutboxStore, name: str, upto: int, why: str, landed: int | None = None) -> bool:
    """Move some of the rows above `upto` to a new stream of the lane, with new sequences and the same event ids.

    `landed`: the highest sequence that the bridge has. If it had accepted more, a gap record in the new stream names them.
    Returns True if rows are left: call it again. After a kill between two calls, the next hello finds the same and goes on.
    """
    with store.transaction():
        old = store.streams.get(name)
        store.accept(name, min(upto, old.head))
        new = store.streams.open(old.lane, why) if old.open else store.streams.of_lane(old.lane)
        accepted = old.counts.settled  # rows that were moved do not count
        if landed is not None and landed < accepted == old.settled:
            _append_lost(store, new, Lost(name, landed + 1, accepted))
        commit_id = store.commit_id_at(old, old.settled) or b""
        rows = within(store.events(old, old.settled, MOVED_ROWS), MOVED_BYTES)
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


def _append_lost(store: OutboxStore, stream: Stream, lost: Lost) -> None:
    stream.head += 1
    stream.counts.stored += 1
    gap = Gap(GapReason.LOST, stream.head, stream.head, LOST, lost=lost)
    body = encode_event(store.gap_records.make(gap, stream, replayed=True))
    row = (event_place(stream.number, stream.head), os.urandom(COMMIT_ID_BYTES), pack_body(body), None)
    store.connection.execute(SQL["insert_event"], row)


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
        store.quarantine.add(quarantined((new.number, new.head), rejected, body))
        new.counts.quarantined += 1
        return encode_event(gap_in_place(store, new, rejected, body, GapReason.DAMAGED))
