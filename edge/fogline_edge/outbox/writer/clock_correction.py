"""Corrects the times of events that came while the wall clock was not set, once it is set, by the clock since boot.

Only events that the uplink has not read yet are changed, so that a retransmission equals the first transmission. Events of
an earlier boot stay as they are, because nobody knows how long the machine was off.
"""

import logging
import sqlite3
from collections.abc import Mapping

from msgspec.structs import replace

from fogline.errors import Poison
from fogline.events.codec import decode_event, encode_event
from fogline.events.event import TimeQuality, parse_rfc3339, rfc3339
from fogline_edge.outbox.file.queries import SQL
from fogline_edge.outbox.rows.stored_body import pack_body, unpack_body
from fogline_edge.outbox.rows.streams import event_place
from fogline_edge.outbox.writer.store import OutboxStore

RANGES_AT_ONCE = 500
"""The most ranges of arrivals that one transaction corrects."""
_MS = 1_000_000

_log = logging.getLogger("fogline.outbox")


def correct(store: OutboxStore) -> bool:
    """Within a transaction: correct some ranges, the oldest first. Returns True if there may be more."""
    connection = store.connection
    ranges = connection.execute(SQL["read_unsynced"], (RANGES_AT_ONCE,)).fetchall()
    now_ns, now = store.clock.time_ns(), store.clock.beacon()
    by_number = {stream.number: stream for stream in store.streams.everything()}
    corrected = 0
    for number, first, last, boot, boottime_ms in ranges:
        connection.execute(SQL["drop_unsynced"], (number, first))
        if boot != now.boot_id or number not in by_number:
            continue
        stream = by_number[number]
        begin = max(first, store.handed.get(stream.stream, 0) + 1)
        time_ns = now_ns - (now.boottime_ms - boottime_ms) * _MS
        corrected += _rewrite(connection, number, (begin, last), time_ns)
        stream.forget_tail()
    store.ingest.unsynced = len(ranges) == RANGES_AT_ONCE
    _log.info("the clock is set: the times of %d events were corrected", corrected)
    return store.ingest.unsynced


def _rewrite(connection: sqlite3.Connection, number: int, span: tuple[int, int], time_ns: int) -> int:
    """Set the time of a range's events. Returns the number of changed events."""
    first, last = (event_place(number, each) for each in span)
    changed = []
    for place, body in connection.execute(SQL["unsynced_events"], (first, last)).fetchall():
        try:
            event = decode_event(unpack_body(body))
        except Poison:
            continue
        if event.timequality is not TimeQuality.UNSYNCED:
            continue
        times: Mapping[str, str] = {"recordedtime": rfc3339(time_ns)}
        if event.expirytime is not None:
            shift_ns = time_ns - parse_rfc3339(event.recordedtime)
            times = {**times, "expirytime": rfc3339(parse_rfc3339(event.expirytime) + shift_ns)}
        changed.append((pack_body(encode_event(replace(event, timequality=TimeQuality.CORRECTED, **times))), place))
    connection.executemany(SQL["replace_body"], changed)
    return len(changed)
