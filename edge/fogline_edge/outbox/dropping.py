"""What goes when the outbox is nearly full: of the lanes that let go, the oldest rows. One gap record stands for them.

It has the place and the chain of the last of them, and begins at the lowest unconfirmed sequence whenever it is sent
(`work.read`). A stream has one at most, in front of all its rows: what is dropped later is added to it.
"""

import logging
from typing import TYPE_CHECKING

from fogline.codec import decode_event, encode_event
from fogline.errors import Poison
from fogline.event import Event, Lane
from fogline.gap import Gap, GapReason, decode_gap, gap_event
from fogline_edge.boot import time_quality
from fogline_edge.outbox.queries import SQL
from fogline_edge.outbox.streams import Stream

if TYPE_CHECKING:
    from fogline_edge.outbox.writer import Writer

MAX_ROWS = 2000
"""The most rows that go in one transaction."""
MAX_DETAIL = 500
WHY = "the outbox was full"

_log = logging.getLogger("fogline.outbox")


def drop(writer: "Writer", lanes: frozenset[Lane], wanted_bytes: int) -> int:
    """Within a transaction: let go of `wanted_bytes` or so, of the lane with the most rows. Returns how many rows went."""
    stream = _longest(writer.streams.pending(), lanes)
    if stream is None:
        return 0
    after, upto, found = stream.kept_after, 0, 0
    sizes = writer.connection.execute(SQL["sizes"], (stream.number, after, min(MAX_ROWS, stream.droppable)))
    for sequence, size in sizes.fetchall():
        upto, found = sequence, found + size
        if found >= wanted_bytes:
            break
    if not stream.dropped.upto:
        _log.warning("the outbox is nearly full: lane %s drops its oldest events, from %d on", stream.lane, after + 1)
    _drop(writer, stream, upto)
    return upto - after


def _longest(pending: list[Stream], lanes: frozenset[Lane]) -> Stream | None:
    """The oldest stream with something to drop, of the lane that has the most of it."""
    waiting = dict.fromkeys(lanes, 0)
    for stream in pending:
        if stream.lane in lanes:
            waiting[stream.lane] += stream.droppable
    lane = max(sorted(waiting), key=waiting.__getitem__, default=None)
    return next((each for each in pending if each.lane is lane and each.droppable), None)


def _drop(writer: "Writer", stream: Stream, upto: int) -> None:
    connection, number = writer.connection, stream.number
    detail = _detail(writer, stream, upto)
    connection.execute(SQL["pass"], (number, min(upto, max(stream.unsure_upto, writer.handed.get(stream.stream, 0)))))
    connection.execute(SQL["delete_settled"], (number, upto - 1))
    stream.counts.dropped += upto - stream.kept_after
    stream.dropped.upto = upto
    event = gap_over(writer, stream, stream.settled + 1, upto, detail)
    connection.execute(SQL["replace_body"], (encode_event(event), number, upto))
    if writer.ingest.unsynced:
        connection.execute(SQL["drop_unsynced_settled"], (number, upto))
    stream.forget_tail(upto)
    writer.streams.save(stream)


def gap_over(writer: "Writer", stream: Stream, first: int, upto: int, detail: str) -> Event:
    """The gap record over what was dropped of a stream."""
    (tenant, gateway), now_ns = writer.identity, writer.clock.time_ns()
    return gap_event(
        Gap(GapReason.DROPPED, first, upto, detail),
        tenant=tenant,
        gateway=gateway,
        stream=stream.stream,
        lane=stream.lane,
        now_ns=now_ns,
        timequality=time_quality(writer.clock),
    )


def _detail(writer: "Writer", stream: Stream, upto: int) -> str:
    """Why, and what gap records among what is dropped said."""
    found = writer.connection.execute(SQL["gaps"], (stream.number, upto)).fetchall()
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
