"""What came while the wall clock was not set gets its right time once it is: by the clock since the boot, which always ran.

Only what the uplink has not been given yet is changed, so that a resend is what was sent. What came in another boot stays
as it is: nobody knows how long the machine was off.
"""

import logging
import sqlite3
from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from fogline.codec import decode_event, encode_event
from fogline.errors import Poison
from fogline.event import TimeQuality, parse_rfc3339, rfc3339
from fogline_edge.outbox.queries import SQL

if TYPE_CHECKING:
    from fogline_edge.outbox.writer import Writer

RANGES_AT_ONCE = 500
"""How many groups of arrivals are corrected in one transaction."""
_MS = 1_000_000

_log = logging.getLogger("fogline.outbox")


def correct(writer: "Writer") -> bool:
    """Within a transaction: correct some, the oldest first. Returns whether there may be more."""
    connection = writer.connection
    ranges = connection.execute(SQL["read_unsynced"], (RANGES_AT_ONCE,)).fetchall()
    now_ns, now = writer.clock.time_ns(), writer.clock.beacon()
    by_number = {stream.number: stream for stream in writer.streams.everything()}
    corrected = 0
    for number, first, last, boot, boottime_ms in ranges:
        connection.execute(SQL["drop_unsynced"], (number, first))
        if boot != now.boot_id or number not in by_number:
            continue
        stream = by_number[number]
        begin = max(first, writer.handed.get(stream.stream, 0) + 1)
        time_ns = now_ns - (now.boottime_ms - boottime_ms) * _MS
        corrected += _rewrite(connection, number, (begin, last), time_ns)
        stream.forget_tail()
    writer.ingest.unsynced = len(ranges) == RANGES_AT_ONCE
    _log.info("the clock is set: the times of %d events were corrected", corrected)
    return writer.ingest.unsynced


def _rewrite(connection: sqlite3.Connection, number: int, span: tuple[int, int], time_ns: int) -> int:
    """Give the events of a range their time. Returns how many there were."""
    rows = connection.execute(SQL["unsynced_events"], (number, *span)).fetchall()
    changed = []
    for sequence, body in rows:
        try:
            event = decode_event(body)
        except Poison:
            continue
        if event.timequality is not TimeQuality.UNSYNCED:
            continue
        times: Mapping[str, str] = {"recordedtime": rfc3339(time_ns)}
        if event.expirytime is not None:
            shift_ns = time_ns - parse_rfc3339(event.recordedtime)
            times = {**times, "expirytime": rfc3339(parse_rfc3339(event.expirytime) + shift_ns)}
        changed.append((encode_event(replace(event, timequality=TimeQuality.CORRECTED, **times)), number, sequence))
    connection.executemany(SQL["replace_body"], changed)
    return len(changed)
