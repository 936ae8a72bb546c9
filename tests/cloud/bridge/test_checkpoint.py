"""The entries of the checkpoint topic: bytes in, knowledge out."""

import pytest

from fogline.event import Lane
from fogline_cloud.bridge.admission import Known
from fogline_cloud.bridge.checkpoint import position_entry, read_entries, stream_entry

KNOWN = Known(gateway="gw-1", stream="00112233445566aa", lane=Lane.TELEMETRY, hwm=7)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"position", b'{"hono.telemetry.acme": "12"}'),
        (b"route/\xff", b'{"gateway": "gw-1", "since_ms": 1}'),
        (b"owner", b""),
        (b"something else", b"\xff"),
    ],
)
def test_an_entry_that_cannot_be_read_is_passed_over(key, value):
    found = read_entries([stream_entry(KNOWN), (key, value), position_entry({"hono.event.acme": 3})])
    assert found.streams == {("gw-1", "00112233445566aa"): KNOWN}
    assert found.position == {"hono.event.acme": 3}


def test_a_stream_that_cannot_be_read_has_all_records_read_again():
    unreadable = b'{"gateway": "gw-1", "stream": "00112233445566bb", "lane": "a newer one"}'
    entries = [stream_entry(KNOWN), (b"stream/gw-1/00112233445566bb", unreadable), position_entry({"hono.event.acme": 3})]
    found = read_entries(entries)
    assert found.streams == {("gw-1", "00112233445566aa"): KNOWN}
    assert found.position == {}
