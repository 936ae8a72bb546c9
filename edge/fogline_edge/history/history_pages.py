"""Pages of the kept events of a device, each within the bounds of a command's reply."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from fogline.commands.history import HistoryPage, HistoryQuery, HistoryState, Place
from fogline_edge.history.history_file import history_state, reading_history, unpack_event

PAGE_BYTES = 64 * 1024
"""Limit of the events of one page, in bytes: on a line of 10 kB/s other replies wait for it for some seconds."""
PAGE_EVENTS = 1000
"""Limit of the events of one page."""
_QUERY = """SELECT at_ms, number, body FROM event WHERE device = ? AND at_ms < ? AND (at_ms, number) >= (?, ?)
    ORDER BY at_ms, number LIMIT ?"""


def fill_page(
    found: Iterator[tuple[Place, bytes]], max_bytes: int = PAGE_BYTES, max_events: int = PAGE_EVENTS
) -> tuple[list[bytes], Place | None]:
    """Return the events of one page, and the place of the first one after it; `None` if all that were found are in it.

    `found` is in order, and is read no further than to that place. An event of more than `max_bytes` is without its data.
    """
    page: list[bytes] = []
    left = max_bytes
    for place, body in found:
        event = body if len(body) <= max_bytes else _without_data(body)
        if page and (len(event) > left or len(page) == max_events):
            return page, place
        page.append(event)
        left -= len(event)
    return page, None


def _without_data(body: bytes) -> bytes:
    event = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    data = event.pop("data", None) or event.pop("data_base64")
    return msgspec.json.encode({**event, "too_big_bytes": len(bytes(data))})


def read_history_page(folder: Path, device: str, query: HistoryQuery) -> HistoryPage:
    """Return a page of the kept events of a device. Raises `Misconfigured` if the history cannot be read."""
    begin = max(query.begin or (0, 0), (query.since_ms, 0))
    with reading_history(folder) as connection:
        if connection is None:
            return HistoryPage([], None, HistoryState(0, 0, 0))
        rows = connection.execute(_QUERY, (device, query.until_ms, *begin, PAGE_EVENTS + 1))
        events, following = fill_page(((at_ms, number), unpack_event(body)) for at_ms, number, body in rows)
    return HistoryPage([msgspec.Raw(each) for each in events], following, msgspec.convert(history_state(folder), HistoryState))
