"""HTTP requests of devices, through h11, head, path and event."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import h11

from fogline.errors import Poison
from fogline_edge.adapters.http.codec import MAX_HEAD_BYTES
from fogline_edge.adapters.http.intake import arrival, status
from fogline_edge.adapters.http.paths import EventPath, HttpPaths, ReplyPath
from fogline_edge.adapters.http.wire import HttpRequest, read_head
from fogline_edge.settings import PathSettings
from fuzz.forms import MISSING, Choice, Decoder, Field, Form, Layer
from fuzz.values import BYTES, TEXTS

PATHS = HttpPaths("acme", [PathSettings(path="plant/{device}/#")])
VALUES: list[Choice] = [*((kind, value) for kind, value in TEXTS.items() if len(value) < 6000), ("presence/missing", MISSING)]
RAW: list[Choice] = [
    ("presence/nothing", b""),
    ("value/colon", b": x\r\n"),
    ("value/folded", b"a: b\r\n c\r\n"),
    ("value/blank name", b"a b: c\r\n"),
    ("value/bare cr", b"a: b\rc: d\r\n"),
    ("value/two lengths", b"content-length: 3\r\ncontent-length: 4\r\n"),
    ("value/chunked too", b"transfer-encoding: chunked\r\n"),
    ("value/upgrade", b"connection: upgrade\r\nupgrade: websocket\r\n"),
    ("value/expect", b"expect: 100-continue\r\n"),
    ("length/20 kB", b"a: " + b"x" * 20_000 + b"\r\n"),
    ("length/2000 headers", b"a: b\r\n" * 2000),
]
METHODS: list[Choice] = [(f"value/{each}", each.encode()) for each in ("GET", "HEAD", "CONNECT", "put", "P T", "", "X" * 5000)]
VERSIONS: list[Choice] = [(f"value/{each}", each.encode()) for each in ("HTTP/1.0", "HTTP/2.0", "HTTP/1.1x", "", "ICY")]


class Whole(NamedTuple):
    """A request that came whole."""

    event: h11.Request
    body: bytes


def _read(data: bytes) -> Whole:
    reader = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
    try:
        reader.receive_data(data)
        reader.receive_data(b"")
        found, body = None, b""
        while not isinstance(event := reader.next_event(), h11.EndOfMessage):
            if isinstance(event, h11.Request):
                found = event
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            else:
                raise Poison("malformed", "no request")
    except h11.RemoteProtocolError as error:
        raise Poison("malformed", str(error)) from None
    assert found is not None
    return Whole(found, body)


def _head(whole: Whole) -> tuple[HttpRequest, bytes]:
    return read_head(whole.event.method, whole.event.target, list(whole.event.headers)), whole.body


def _target(given: tuple[HttpRequest, bytes]) -> tuple[EventPath | ReplyPath, HttpRequest, bytes]:
    request, body = given
    return PATHS.resolve(request.path), request, body


def _content(given: tuple[EventPath | ReplyPath, HttpRequest, bytes]) -> Any:
    target, request, body = given
    if isinstance(target, ReplyPath):
        return status(request)
    return arrival(target, "lamp-1", request, body, None)


def _form(name: str, target: Sequence[bytes], headers: Mapping[str, bytes], body: bytes) -> Form:
    def render(replaced: Mapping[str, Any]) -> bytes:
        parts = [replaced.get(f"target {n}", each) for n, each in enumerate(target)]
        path = b"".join(b"" if each is MISSING else bytes(each) for each in parts)
        line = replaced.get("method", b"PUT") + b" " + path + b" " + replaced.get("version", b"HTTP/1.1") + b"\r\n"
        data = bytes(replaced.get("body", body))
        given = {"host": b"gw", "content-length": b"%d" % len(data), **headers}
        found = {each: replaced.get(each, value) for each, value in given.items()}
        lines = b"".join(each.encode() + b": " + value + b"\r\n" for each, value in found.items() if value is not MISSING)
        return bytes(line + lines + replaced.get("raw", b"") + b"\r\n" + data)

    return Form(
        name,
        [
            Field("method", "bytes", METHODS),
            Field("version", "bytes", VERSIONS),
            Field("raw", "bytes", RAW),
            Field("content-length", "bytes", VALUES),
            *(Field(f"target {n}", "bytes", VALUES) for n in range(len(target))),
            *(Field(each, "bytes", VALUES) for each in headers),
            Field("body", "bytes", [*TEXTS.items(), *BYTES.items()]),
        ],
        render,
    )


EVENT = b'{"specversion":"1.0","id":"1","source":"/s","type":"t","time":"2026-01-02T03:04:05Z","data":{"a":1}}'
HTTP = Decoder(
    "http",
    (Layer("bytes", _read), Layer("head", _head), Layer("path", _target), Layer("content", _content)),
    [
        _form(
            "event",
            [b"/t/", b"acme", b"/", b"lamp-1", b"?", b"hono-ttd=5", b"&hono-ttl=", b"60"],
            {"content-type": b"application/json", "idempotency-key": b"k", "ce-id": b"1", "ce-time": b"2026-01-02T03:04:05Z"},
            b"{}",
        ),
        _form("structured", [b"/plant/", b"lamp-1", b"/x"], {"content-type": b"application/cloudevents+json"}, EVENT),
        _form(
            "answer",
            [b"/command/res//", b"lamp-1", b"/", b"C-1", b"?hono-cmd-status=", b"200"],
            {"content-type": b"text/a"},
            b"x",
        ),
    ],
)
