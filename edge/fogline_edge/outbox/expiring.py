"""Events that expired while they waited: on lanes that want it, a gap record takes the place of each when its turn comes.

The wall clock decides, because a device's expiry may be days away and outlive a restart of the machine. So nothing
expires unless the clock is known to be right now, and was when the event came; a clock that jumps expires nothing.
"""

import sqlite3
from typing import TYPE_CHECKING

from fogline.codec import decode_event, encode_event
from fogline.errors import Poison
from fogline.event import Event, TimeQuality, parse_rfc3339
from fogline.gap import Gap, GapReason, gap_event
from fogline_edge.boot import Moment, moment
from fogline_edge.outbox.queries import SQL
from fogline_edge.outbox.streams import Row, Stream

if TYPE_CHECKING:
    from fogline_edge.outbox.writer import Writer

_EXPIRES = b'"expirytime":"'


def expire(writer: "Writer", stream: Stream, rows: list[Row]) -> list[Row]:
    """The rows to send: those that expired are gap records now, durably. What the uplink was given before stays as it was."""
    handed, now = writer.handed.get(stream.stream, 0), None
    changed: dict[int, bytes] = {}
    for row in rows:
        if _EXPIRES in row.body and row.sequence > handed:
            now = now or moment(writer.clock)
            event = _expired(row, now)
            if event is not None:
                changed[row.sequence] = encode_event(_gap(writer, stream, event, now))
    if not changed:
        return rows
    try:
        with writer.transaction():
            stream = writer.streams.get(stream.stream)
            places = [(body, stream.number, sequence) for sequence, body in changed.items()]
            writer.connection.executemany(SQL["replace_body"], places)
            stream.counts.dropped += len(changed)
            writer.streams.save(stream)
    except sqlite3.OperationalError as error:
        if not writer.may_wait(error):
            raise
        return rows  # no room to write that down: they are sent
    stream.forget_tail()
    return [row._replace(body=changed.get(row.sequence, row.body)) for row in rows]


def _expired(row: Row, now: Moment) -> Event | None:
    """The event of a row, if its expiry is past for certain."""
    try:
        event = decode_event(row.body)
        if not now.synced or event.expirytime is None or event.timequality is TimeQuality.UNSYNCED:
            return None
        return event if parse_rfc3339(event.expirytime) <= now.time_ns else None
    except (Poison, ValueError):
        return None


def _gap(writer: "Writer", stream: Stream, event: Event, now: Moment) -> Event:
    tenant, gateway = writer.identity
    detail = f"it was of use until {event.expirytime}"
    return gap_event(
        Gap(GapReason.EXPIRED, event.sequence, event.sequence, detail, event.id, event.device),
        tenant=tenant,
        gateway=gateway,
        stream=stream.stream,
        lane=stream.lane,
        now_ns=now.time_ns,
    )
