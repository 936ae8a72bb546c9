"""Reads the events of a stream for the uplink."""

import contextlib
from collections.abc import Iterable

from fogline.errors import Poison
from fogline.events.codec import decode_event, encode_event
from fogline.events.gap import Gap, GapReason, above
from fogline_edge.outbox.rows.streams import EventRecord, Stream
from fogline_edge.outbox.writer.drop_oldest import WHY
from fogline_edge.outbox.writer.expiry import expire
from fogline_edge.outbox.writer.store import OutboxStore


def read(store: OutboxStore, name: str, after: int, limit: int, limit_bytes: int | None) -> tuple[list[EventRecord], bool]:
    """Return at most `limit` rows above `after`, with at most `limit_bytes` of bodies; at least one row if there is one.

    Also returns True if the writer passes on the rows behind these by itself (see `LiveRows`).
    """
    stream = store.streams.get(name)
    remembered = stream.remembered(after, limit)
    if remembered is not None:
        rows = within(remembered, limit_bytes)
    else:
        with contextlib.closing(store.events(stream, after, limit)) as found:
            rows = within(found, limit_bytes)
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
    """Stop passing the committed rows of a stream, or of all streams, to the loop."""
    if name is None:
        store.live.clear()
    else:
        store.live.pop(name, None)


def within(rows: Iterable[EventRecord], limit_bytes: int | None) -> list[EventRecord]:
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
