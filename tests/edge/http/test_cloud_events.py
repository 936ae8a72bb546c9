"""CloudEvents in requests."""

import json

import pytest

from fogline.events.identity import UniqueId
from fogline_edge.adapters.http.cloud_events import read_event
from fogline_edge.adapters.http.wire import HttpRefused, read_head


def given(body: bytes, **headers: str):
    named = [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items()]
    return read_event(read_head(b"PUT", b"/t//d1", named), body)


def structured(**document):
    base = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}
    return given(json.dumps({**base, **document}).encode(), content_type="application/cloudevents+json; charset=utf-8")


def test_binary_mode():
    found = given(b"{}", content_type="application/json", ce_id="a%20b", ce_source="/s", ce_specversion="1.0", ce_room="x")
    assert (found.data, found.content_type, found.evidence) == (b"{}", "application/json", UniqueId(b"/s\0a b"))
    assert dict(found.attributes) == {"source": "/s", "room": "x"}


def test_an_id_without_a_source_and_an_idempotency_key():
    assert given(b"x", ce_id="7").evidence == UniqueId(b"7")
    assert given(b"x", idempotency_key='"7"').evidence == UniqueId(b'"7"')
    assert given(b"x", idempotency_key="7", ce_id="8", ce_source="/s").evidence == UniqueId(b"/s\x008")
    assert given(b"x").evidence is None


@pytest.mark.parametrize(
    ("document", "data", "content_type"),
    [
        ({"data": {"a": 1}}, b'{"a": 1}', "application/json"),
        ({"data": [1], "datacontenttype": "application/senml+json"}, b"[1]", "application/senml+json"),
        ({"data": "21 \u00b0C", "datacontenttype": "text/plain"}, "21 \u00b0C".encode(), "text/plain"),
        ({"data": "text"}, b'"text"', "application/json"),
        ({"data_base64": "AP8="}, b"\0\xff", "application/octet-stream"),
        ({"data_base64": "AP8=", "datacontenttype": "application/cbor"}, b"\0\xff", "application/cbor"),
    ],
    ids=str,
)
def test_structured_mode(document, data, content_type):
    found = structured(time="2026-01-02T03:04:05Z", subject="x", **document)
    assert (found.data, found.content_type, found.evidence) == (data, content_type, UniqueId(b"/s\x001"))
    assert found.time_ns == 1_767_323_045_000_000_000
    assert dict(found.attributes) == {"source": "/s", "type": "t", "subject": "x"}


@pytest.mark.parametrize(
    "document",
    [{"id": 7}, {"source": None}, {"data": 1, "data_base64": "AP8="}, {"data_base64": "A"}, {"id": "x" * 257}],
    ids=str,
)
def test_invalid_cloud_event_is_refused(document):
    with pytest.raises(HttpRefused):
        structured(**document)


@pytest.mark.parametrize("time", ["yesterday", "2026-01-02T03:04:05", "9999-01-01T00:00:00Z"])
def test_a_time_that_is_none_is_left_out(time):
    assert given(b"x", ce_time=time).time_ns is None
