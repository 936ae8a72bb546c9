"""Pages of the kept events of a device: each within its bounds, and together every event once, in order."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fogline.commands.command import MAX_COMMAND_BYTES
from fogline.commands.history import HistoryQuery
from fogline.errors import Misconfigured
from fogline_edge.history.history_file import NAME, HistoryFile, KeptEvent
from fogline_edge.history.history_pages import PAGE_BYTES, fill_page, read_history_page
from fogline_lab.events import make_noise

LIMIT = 200
HEAD = {"time": "2026-09-21T14:13:19.000000Z", "device": "d", "channel": "raw", "type": "telemetry", "rule": "same"}


def body(data: str, key: str = "data_base64") -> bytes:
    return json.dumps({**HEAD, key: data}).encode()


EVENTS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 300)), max_size=40)
"""Time and size of the data of each event. Several have the same time."""


@given(EVENTS, st.integers(150, 1000), st.integers(1, 7))
def test_pages_have_every_event_once_in_order_within_their_bounds(events, max_bytes, max_events):
    kept = sorted(((at_ms, number), body("x" * size)) for number, (at_ms, size) in enumerate(events))
    begin, found = (0, 0), []
    while begin is not None:
        page, following = fill_page((each for each in kept if each[0] >= begin), max_bytes, max_events)
        assert len(page) <= max_events
        assert len(page) == 1 or sum(map(len, page)) <= max_bytes
        assert following is None or (page and following > begin) or len(found) == 0
        found += page
        begin = following
    assert len(found) == len(kept)
    for (_, whole), event in zip(kept, found, strict=True):
        without = {**HEAD, "too_big_bytes": len(json.loads(whole)["data_base64"]) + 2}
        assert json.loads(event) == (json.loads(whole) if len(whole) <= max_bytes else without)


@pytest.mark.parametrize(("key", "data"), [("data", ""), ("data", "x" * 300), ("data_base64", "QUFB" * 100)])
def test_event_that_is_too_big_for_a_page_says_its_size_and_what_it_is(key, data):
    (event,), following = fill_page(iter([((1, 1), body(data, key))]), max_bytes=100)
    assert (json.loads(event), following) == ({**HEAD, "too_big_bytes": len(data) + 2}, None)


@pytest.fixture
def history(tmp_path):
    file = HistoryFile(tmp_path, 10_000_000)
    yield file
    file.close()


def every_page(folder, query=None):
    query = query or HistoryQuery()
    pages = []
    while True:
        pages.append(read_history_page(folder, "d", query))
        if pages[-1].next is None:
            return pages
        query = HistoryQuery(query.since_ms, query.until_ms, pages[-1].next)


def times(pages):
    return [json.loads(bytes(each))["at"] for page in pages for each in page.events]


def add(history, device="d", count=3000, size=200):
    events = [{"at": n // 2, "data_base64": make_noise(size, n).hex()} for n in range(count)]
    history.add([KeptEvent(device, each["at"], 10**9, json.dumps(each).encode()) for each in events], 0)


def test_pages_of_the_file_have_all_events_of_one_device_and_span(history, tmp_path):
    add(history)
    add(history, device="other", count=10)
    pages = every_page(tmp_path)
    assert len(pages) > 2
    assert times(pages) == [n // 2 for n in range(3000)]
    assert all(sum(len(bytes(each)) for each in page.events) <= PAGE_BYTES < MAX_COMMAND_BYTES for page in pages)
    assert {page.history.events for page in pages} == {3010}
    assert times(every_page(tmp_path, HistoryQuery(100, 900))) == [n // 2 for n in range(200, 1800)]
    assert times([read_history_page(tmp_path, "d", HistoryQuery(100, 200, (0, 0)))])[0] == 100


def test_page_whose_first_events_are_deleted_meanwhile_begins_with_the_next_ones(history, tmp_path):
    add(history)
    first = read_history_page(tmp_path, "d", HistoryQuery())
    history._connection.execute("DELETE FROM event WHERE number <= 2000")
    rest = every_page(tmp_path, HistoryQuery(begin=first.next))
    assert times(rest) == [n // 2 for n in range(2000, 3000)]


def test_history_that_is_not_there_is_empty_and_one_that_is_damaged_is_an_error(tmp_path):
    assert read_history_page(tmp_path, "d", HistoryQuery()).events == []
    (tmp_path / NAME).write_bytes(b"no database" * 1000)
    with pytest.raises(Misconfigured, match="cannot be read"):
        read_history_page(tmp_path, "d", HistoryQuery())
