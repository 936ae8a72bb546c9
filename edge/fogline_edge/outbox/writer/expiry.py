"""Replaces events that expired while they waited by gap records, on lanes with `when_expired = drop`.

The wall clock decides, because a device's expiry may be days away and may outlive a restart of the machine. So an event only
expires if the clock is known to be right now, and was when the event came. A clock that jumps expires nothing.
"""

import sqlite3

from fogline.errors import Poison
from fogline.events.codec import decode_event, encode_event
from fogline.events.event import Event, TimeQuality, parse_rfc3339
from fogline.events.gap import Gap, GapReason
from fogline_edge.machine.boot import Moment, moment
from fogline_edge.outbox.file.queries import SQL
from fogline_edge.outbox.rows.streams import EventRecord, Stream, event_place
from fogline_edge.outbox.writer.store import OutboxStore

_EXPIRES = b'"expirytime":"'


def expire(store: OutboxStore, stream: Stream, rows: list[EventRecord]) -> list[EventRecord]:
    """Return the rows to send; expired ones are durably replaced by gap records. Rows that were read before never change."""
    handed, now = store.handed.get(stream.stream, 0), None
    changed: dict[int, bytes] = {}
    for row in rows:
        if _EXPIRES in row.body and row.sequence > handed:
            now = now or moment(store.clock)
            event = _expired(row, now)
            if event is not None:
                changed[row.sequence] = encode_event(_gap(store, stream, event))
    if not changed:
        return rows
    try:
        with store.transaction():
            stream = store.streams.get(stream.stream)
            places = [(body, event_place(stream.number, sequence)) for sequence, body in changed.items()]
            store.connection.executemany(SQL["replace_body"], places)
            stream.counts.dropped += len(changed)
            store.streams.changed(stream)
    except sqlite3.OperationalError as error:
        if not store.may_wait(error):
            raise
        return rows  # no room to write the gap records: the events are sent
    stream.forget_tail()
    return [row._replace(body=changed.get(row.sequence, row.body)) for row in rows]


def _expired(row: EventRecord, now: Moment) -> Event | None:
    """Return the row's event if it has certainly expired."""
    try:
        event = decode_event(row.body)
        if not now.synced or event.expirytime is None or event.timequality is TimeQuality.UNSYNCED:
            return None
        return event if parse_rfc3339(event.expirytime) <= now.time_ns else None
    except (Poison, ValueError):
        return None


def _gap(store: OutboxStore, stream: Stream, event: Event) -> Event:
    detail = f"it was of use until {event.expirytime}"
    gap = Gap(GapReason.EXPIRED, event.sequence, event.sequence, detail, event.id, event.device)
    return store.gap_records.make(gap, stream)
