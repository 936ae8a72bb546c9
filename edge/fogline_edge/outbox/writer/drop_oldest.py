"""Drops the oldest rows of a lane when the outbox is nearly full, and puts one gap record in their place.

The gap record takes the sequence and the commit id of the last dropped row. Whenever it is sent, it begins at the lowest
unconfirmed sequence (`reading.read`). A stream has at most one, in front of all its rows: later drops extend it.
"""

import logging

from fogline.errors import Poison
from fogline.events.codec import decode_event, encode_event
from fogline.events.event import Lane
from fogline.events.gap import Gap, GapReason, decode_gap
from fogline_edge.outbox.file.queries import SQL
from fogline_edge.outbox.rows.streams import Stream, event_place
from fogline_edge.outbox.writer.store import OutboxStore

MAX_ROWS = 2000  # that one transaction drops
MAX_DETAIL = 500
WHY = "the outbox was full"

_log = logging.getLogger("fogline.outbox")


def drop(store: OutboxStore, lanes: frozenset[Lane], wanted_bytes: int) -> int:
    """Within a transaction: drop some `wanted_bytes` of the lane with the most rows. Returns the number of dropped rows."""
    stream = _longest(store.streams.pending(), lanes)
    if stream is None:
        return 0
    after, upto, found = stream.kept_after, 0, 0
    span = event_place(stream.number, after), event_place(stream.number + 1, 0)
    sizes = store.connection.execute(SQL["sizes"], (*span, min(MAX_ROWS, stream.droppable)))
    for sequence, size in sizes.fetchall():
        upto, found = sequence, found + size
        if found >= wanted_bytes:
            break
    if not stream.dropped.upto:
        text, extra = "the outbox is nearly full: lane %s drops its oldest events, from %d on", {"reason": "dropped"}
        _log.warning(text, stream.lane, after + 1, extra={"lane": stream.lane.value, **extra})
    _drop(store, stream, upto)
    return upto - after


def _longest(pending: list[Stream], lanes: frozenset[Lane]) -> Stream | None:
    """Return the oldest stream with droppable rows, of the lane that has the most of them."""
    waiting = dict.fromkeys(lanes, 0)
    for stream in pending:
        if stream.lane in lanes:
            waiting[stream.lane] += stream.droppable
    lane = max(sorted(waiting), key=waiting.__getitem__, default=None)
    return next((each for each in pending if each.lane is lane and each.droppable), None)


def _drop(store: OutboxStore, stream: Stream, upto: int) -> None:
    connection, number = store.connection, stream.number
    detail = _detail(store, stream, upto)
    # Rows that may have been sent leave their commit id behind: the bridge may have accepted one and ask for it in hello.
    sent = min(upto, max(stream.unsure_upto, store.handed.get(stream.stream, 0)))
    connection.execute(SQL["pass"], (event_place(number, 0), event_place(number, sent)))
    connection.execute(SQL["delete_events"], (event_place(number, 0), event_place(number, upto - 1)))
    stream.counts.dropped += upto - stream.kept_after
    stream.dropped.upto = upto
    gap = Gap(GapReason.DROPPED, stream.settled + 1, upto, detail)
    connection.execute(SQL["replace_body"], (encode_event(store.gap_records.make(gap, stream)), event_place(number, upto)))
    if store.ingest.unsynced:
        connection.execute(SQL["drop_unsynced_settled"], (number, upto))
    stream.forget_tail(upto)
    store.streams.changed(stream)


def _detail(store: OutboxStore, stream: Stream, upto: int) -> str:
    """Return the reason, with the details of the gap records that are dropped too."""
    found = store.connection.execute(SQL["gaps"], (event_place(stream.number, 0), event_place(stream.number, upto))).fetchall()
    detail = WHY
    for sequence, body in found:
        try:
            gap = decode_gap(decode_event(body).data)
        except Poison:
            continue
        if sequence == stream.dropped.upto:
            detail = gap.detail
        elif len(detail) < MAX_DETAIL:
            detail += f"; {gap.first}..{gap.last} {gap.reason}: {gap.detail}"
    return detail[:MAX_DETAIL]
