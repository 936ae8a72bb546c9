"""Entries of the checkpoint topic: bytes in, state out."""

import pytest

from fogline.events.event import Lane
from fogline_cloud.shard.admission import StreamState
from fogline_cloud.shard.checkpoint import position_entry, read_entries, stream_entry

KNOWN = StreamState(gateway="gw-1", stream="00112233445566aa", lane=Lane.TELEMETRY, hwm=7)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"position", b'{"hono.telemetry.acme": "12"}'),
        (b"route/\xff", b'{"gateway": "gw-1", "since_ms": 1}'),
        (b"owner", b""),
        (b"something else", b"\xff"),
    ],
)
def test_a_malformed_entry_is_skipped(key, value):
    found = read_entries([stream_entry(KNOWN), (key, value), position_entry({"hono.event.acme": 3})])
    assert found.streams == {("gw-1", "00112233445566aa"): KNOWN}
    assert found.position == {"hono.event.acme": 3}


def test_after_a_malformed_stream_entry_all_records_are_read_again():
    unreadable = b'{"gateway": "gw-1", "stream": "00112233445566bb", "lane": "a newer one"}'
    entries = [stream_entry(KNOWN), (b"stream/gw-1/00112233445566bb", unreadable), position_entry({"hono.event.acme": 3})]
    found = read_entries(entries)
    assert found.streams == {("gw-1", "00112233445566aa"): KNOWN}
    assert found.position == {}
