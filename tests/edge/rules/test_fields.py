"""Fields of a payload: JSON pointers (RFC 6901) over JSON and CBOR, and ranges of bytes."""

import cbor2
import pytest

from fogline.errors import Misconfigured
from fogline_edge.rules.fields import parse_field
from fogline_edge.rules.payload import MAX_DEPTH, MISSING, Payload

# RFC 6901, section 5
STANDARD = b'{"foo": ["bar", "baz"], "": 0, "a/b": 1, "c%d": 2, "e^f": 3, "g|h": 4, "i\\\\j": 5, "k\\"l": 6, " ": 7, "m~n": 8}'
EXAMPLES = {
    "/foo": ["bar", "baz"],
    "/foo/0": "bar",
    "/": 0,
    "/a~1b": 1,
    "/c%d": 2,
    "/e^f": 3,
    "/g|h": 4,
    "/i\\j": 5,
    '/k"l': 6,
    "/ ": 7,
    "/m~0n": 8,
}


@pytest.mark.parametrize(("pointer", "value"), EXAMPLES.items())
def test_pointer_reads_what_the_standard_says(pointer, value):
    assert Payload("application/json", STANDARD).value(parse_field(pointer, "fields")) == value


def test_empty_pointer_is_the_whole_document():
    assert Payload("text/plain", b"21.5").value(parse_field("", "fields")) == 21.5


@pytest.mark.parametrize("pointer", ["/foo/2", "/foo/00", "/foo/-", "/foo/0/x", "/absent", "/foo/1 ", "/foo/٣"])
def test_pointer_to_nothing_is_missing(pointer):
    assert Payload("application/json", STANDARD).value(parse_field(pointer, "fields")) is MISSING


def test_null_is_a_value():
    assert Payload("application/json", b'{"a": null}').value(parse_field("/a", "fields")) is None


@pytest.mark.parametrize("kind", ["application/cbor", "application/senml+cbor; v=1", "Application/CBOR"])
def test_pointer_reads_cbor(kind):
    data = cbor2.dumps({"state": [{"counter": 7}]})
    assert Payload(kind, data).value(parse_field("/state/0/counter", "fields")) == 7


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("application/json", b"{"),
        ("application/json", b"[" * 100_000),
        ("application/json", b"\xff"),
        ("application/octet-stream", b""),
        ("application/cbor", b"\x9f"),
        ("application/cbor", b"\x81" * (MAX_DEPTH + 1) + b"\x01"),
        ("application/cbor", b"\x9b\xff\xff\xff\xff\xff\xff\xff\xff"),
        ("application/cbor", b"\xc1\x61x"),
    ],
)
def test_payload_that_is_no_document_has_no_fields(kind, data):
    payload = Payload(kind, data)
    assert payload.value(parse_field("", "fields")) is MISSING
    assert payload.value(parse_field("/a", "fields")) is MISSING


def test_range_of_bytes_includes_both_ends():
    payload = Payload("application/octet-stream", bytes(range(10)))
    assert payload.value(parse_field("bytes:2-4", "fields")) == b"\x02\x03\x04"
    assert payload.value(parse_field("bytes:9-9", "fields")) == b"\x09"
    assert payload.value(parse_field("bytes:8-10", "fields")) is MISSING


@pytest.mark.parametrize("text", ["a/b", "/a~2", "/a~", "bytes:4-2", "bytes:1", "bytes:-1-2", "$.a"])
def test_wrong_field_is_refused_with_its_key(text):
    with pytest.raises(Misconfigured, match=r"^rules\.identity press: fields = "):
        parse_field(text, "rules.identity press: fields")
