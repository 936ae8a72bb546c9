"""Forms of AMQP conversations: every field of every performative, given to an `Engine` on either side."""

import contextlib
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from fogline.amqp.engine import Engine
from fogline.amqp.events import Closed, ConnectionOpened, LinkClosed, LinkRequested, Received, Settled
from fogline.amqp.outcome import ACCEPTED
from fogline.amqp.security import ServerSecurity
from fogline.errors import Poison
from fogline_lab import amqp_bytes as raw
from fogline_lab.amqp_bytes import described, listed, symbol, text
from fuzz.amqp_messages import described_list
from fuzz.amqp_values import ANY, pairs, uint
from fuzz.forms import Decoder, Field, Form, Layer

OPEN, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, DETACH, END, CLOSE = range(0x10, 0x19)
SOURCE, TARGET, ERROR = 0x28, 0x29, 0x1D
NAMES: Mapping[int, tuple[str, ...]] = {
    OPEN: (
        "container-id", "hostname", "max-frame-size", "channel-max", "idle-time-out", "outgoing-locales",
        "incoming-locales", "offered-capabilities", "desired-capabilities", "properties",
    ),
    BEGIN: (
        "remote-channel", "next-outgoing-id", "incoming-window", "outgoing-window", "handle-max", "offered-capabilities",
        "desired-capabilities", "properties",
    ),
    ATTACH: (
        "name", "handle", "role", "snd-settle-mode", "rcv-settle-mode", "source", "target", "unsettled",
        "incomplete-unsettled", "initial-delivery-count", "max-message-size", "offered-capabilities",
        "desired-capabilities", "properties",
    ),
    FLOW: (
        "next-incoming-id", "incoming-window", "next-outgoing-id", "outgoing-window", "handle", "delivery-count",
        "link-credit", "available", "drain", "echo", "properties",
    ),
    TRANSFER: (
        "handle", "delivery-id", "delivery-tag", "message-format", "settled", "more", "rcv-settle-mode", "state", "resume",
        "aborted", "batchable",
    ),
    DISPOSITION: ("role", "first", "last", "settled", "state", "batchable"),
    DETACH: ("handle", "closed", "error"),
    END: ("error",),
    CLOSE: ("error",),
    SOURCE: (
        "address", "durable", "expiry-policy", "timeout", "dynamic", "dynamic-node-properties", "distribution-mode", "filter",
        "default-outcome", "outcomes", "capabilities",
    ),
    TARGET: ("address", "durable", "expiry-policy", "timeout", "dynamic", "dynamic-node-properties", "capabilities"),
    ERROR: ("condition", "description", "info"),
    0x24: (),
    0x25: ("error",),
    0x26: (),
    0x27: ("delivery-failed", "undeliverable-here", "message-annotations"),
    0x23: ("section-number", "section-offset"),
}  # fmt: skip
TITLES = {
    OPEN: "open", BEGIN: "begin", ATTACH: "attach", FLOW: "flow", TRANSFER: "transfer", DISPOSITION: "disposition",
    DETACH: "detach", END: "end", CLOSE: "close", SOURCE: "source", TARGET: "target", ERROR: "error",
    0x23: "received", 0x24: "accepted", 0x25: "rejected", 0x26: "released", 0x27: "modified",
}  # fmt: skip
MESSAGE = described(raw.DATA, b"\xa0\x02{}")
GREETING = raw.SASL + raw.frame(raw.SASL_INIT, symbol("ANONYMOUS"), sasl=True) + raw.AMQP
OUTCOME = raw.SASL + raw.frame(0x44, b"\x50\x00", sasl=True) + raw.AMQP
OPENED = {"container-id": text("evil"), "properties": pairs(symbol("tenant"), text("acme"), symbol("product"), text("x"))}
BEGUN = {"next-outgoing-id": uint(0), "incoming-window": uint(2**31 - 1), "outgoing-window": uint(2**31 - 1)}


def framed(body: bytes) -> bytes:
    return struct.pack(">IBBH", len(body) + 8, 2, 0, 0) + body


class Part:
    """One frame of a conversation. `inner`: fields that are described lists themselves (source, target, error, state)."""

    def __init__(
        self, code: int, given: Mapping[str, bytes], inner: Mapping[str, tuple[int, Mapping[str, bytes]]] | None = None,
        payload: bytes = b"",
    ) -> None:  # fmt: skip
        self.code = code
        self.title = TITLES[code]
        self._given = given
        self._inner = inner or {}
        self._payload = payload

    def render(self, replaced: Mapping[str, Any]) -> bytes:
        given = dict(self._given)
        for name, (code, fields) in self._inner.items():
            given[name] = described_list(code, NAMES[code], fields, replaced, f"{self.title}/{name}")
            # a replacement of the whole is one of the field, not of what is described there
            if f"{self.title}/{name}" in replaced:
                given[name] = replaced[f"{self.title}/{name}"]
        body = described_list(self.code, NAMES[self.code], given, replaced, self.title)
        return framed(body + replaced.get(f"{self.title} payload", self._payload))

    def paths(self) -> list[str]:
        found = [self.title, *(f"{self.title}/{name}" for name in NAMES[self.code])]
        for name, (code, _) in self._inner.items():
            found += [f"{self.title}/{name}/{each}" for each in NAMES[code]]
        return found


ENDS: Mapping[str, tuple[int, Mapping[str, bytes]]] = {
    "source": (SOURCE, {"address": text("here")}),
    "target": (TARGET, {"address": text("event/acme/lamp-1")}),
}
ATTACHED = {"name": text("raw"), "handle": uint(0), "role": b"\x42", "initial-delivery-count": uint(0)}
SENT = {
    "handle": uint(0), "delivery-id": uint(0), "delivery-tag": b"\xa0\x01a", "message-format": uint(0),
    "settled": b"\x42", "more": b"\x42",
}  # fmt: skip
FLOWED = {
    "next-incoming-id": uint(0), "incoming-window": uint(2**31 - 1), "next-outgoing-id": uint(0),
    "outgoing-window": uint(2**31 - 1), "handle": uint(0), "delivery-count": uint(0), "link-credit": uint(10),
}  # fmt: skip
FAILED = {"condition": symbol("amqp:internal-error"), "description": text("x"), "info": pairs(symbol("k"), text("v"))}
TO_SERVER: Sequence[Part] = (
    Part(OPEN, OPENED),
    Part(BEGIN, BEGUN),
    Part(ATTACH, ATTACHED, ENDS),
    Part(TRANSFER, SENT, payload=MESSAGE),
    Part(FLOW, FLOWED),
    Part(DETACH, {"handle": uint(0), "closed": b"\x41"}, {"error": (ERROR, FAILED)}),
    Part(END, {}, {"error": (ERROR, FAILED)}),
    Part(CLOSE, {}, {"error": (ERROR, FAILED)}),
)
"""What a client says, in the order in which it does."""


def to_client(state: int, fields: Mapping[str, bytes]) -> Sequence[Part]:
    """Frames of a server to a client that has opened a session, attached a sender and sent one message."""
    inner = {"state": (state, fields)}
    return (
        Part(OPEN, OPENED),
        Part(BEGIN, {**BEGUN, "remote-channel": b"\x60\x00\x00"}),
        Part(ATTACH, {**ATTACHED, "name": text("lane"), "role": b"\x41"}, ENDS),
        Part(FLOW, FLOWED),
        Part(DISPOSITION, {"role": b"\x41", "first": uint(0), "last": uint(0), "settled": b"\x41"}, inner),
        Part(DETACH, {"handle": uint(0), "closed": b"\x41"}, {"error": (ERROR, FAILED)}),
        Part(END, {}, {"error": (ERROR, FAILED)}),
        Part(CLOSE, {}, {"error": (ERROR, FAILED)}),
    )


STATES: Sequence[tuple[int, Mapping[str, bytes]]] = (
    (0x24, {}),
    (0x25, {"error": described(ERROR, listed(symbol("a:b"), text("no")))}),
    (0x27, {"delivery-failed": b"\x41"}),
    (0x23, {"section-number": uint(0)}),
)


def conversation(name: str, greeting: bytes, parts: Sequence[Part], only: Sequence[int] | None = None) -> Form:
    """All the frames of one side, in which any field may be replaced. A frame that is replaced is the last one read.

    What stands before it has been accepted when it comes, so each field's aim is its frame.
    """

    def render(replaced: Mapping[str, Any]) -> list[tuple[str, bytes]]:
        return [("greeting", greeting), *((part.title, part.render(replaced)) for part in parts)]

    fields = [Field(path, part.title, ANY) for part in parts if only is None or part.code in only for path in part.paths()]
    return Form(name, fields, render)


class Conversation:
    """An engine that has come as far as the frames before the next one."""

    def __init__(self, engine: Engine, frames: list[tuple[str, bytes]]) -> None:
        self.engine = engine
        self.frames = frames
        self.sent = False
        self.closed = False


def started(frames: list[tuple[str, bytes]], *, server: bool) -> Conversation:
    engine = Engine(
        "engine",
        security=ServerSecurity() if server else None,
        hostname="" if server else "there",
        properties={"tenant": "acme"},
    )
    return Conversation(engine, frames)


def step(title: str):
    """The layer that reads the frame of a title."""

    def read(talk: Conversation) -> Conversation:
        for data in (data for name, data in talk.frames if name == title):
            talk.engine.receive_data(data)
            _handle(talk)
            if talk.closed and title != "close":
                raise Poison("closed", title)
        return talk

    return Layer(title, read)


def _handle(talk: Conversation) -> None:
    """Do what a connection does with the events."""
    engine = talk.engine
    for event in engine.events():
        match event:
            case ConnectionOpened(peer):
                str(peer.properties.get("tenant", ""))
                peer.container.encode("utf-8", "backslashreplace")
                if engine._transport is not None and not talk.sent:
                    engine.open()
                    _attach(talk)
            case LinkRequested(link):
                engine.links.accept(link, credit=10)
            case Received(delivery, _):
                engine.links.settle(delivery, ACCEPTED)
            case LinkClosed(_, condition) | Closed(condition):
                str(condition)
                talk.closed = talk.closed or isinstance(event, Closed)
            case Settled(_, outcome):
                str(outcome)
    while engine.data_to_send():
        pass
    engine.tick(1.0)


def _attach(talk: Conversation) -> None:
    """A client's sender, with a message on its way."""
    talk.sent = True
    engine = talk.engine
    if talk.frames[0][1] == OUTCOME:
        session = engine.links.open_session()
        link = engine.links.open_sender(session, "lane", "event/acme/lamp-1")
        engine.links.send(engine.links.begin(link), MESSAGE, last=True)


def released(talk: Conversation) -> None:
    """The end of every connection: cleaning up may not fail, and nothing may stay."""
    engine = talk.engine
    engine.receive_eof()
    with contextlib.suppress(StopIteration):
        list(engine.events())
    engine.release()
    left = len(engine._table.deliveries)
    assert not left, f"{left} deliveries are left"


TITLE_ORDER = ("greeting", *(part.title for part in TO_SERVER))
SERVER_LAYERS = (Layer("connect", lambda frames: started(frames, server=True)), *map(step, TITLE_ORDER))
CLIENT_ORDER = ("greeting", "open", "begin", "attach", "flow", "disposition", "detach", "end", "close")
CLIENT_LAYERS = (Layer("connect", lambda frames: started(frames, server=False)), *map(step, CLIENT_ORDER))
SERVER = Decoder("amqp/a client's frames", SERVER_LAYERS, [conversation("client", GREETING, TO_SERVER)])
CLIENT = Decoder(
    "amqp/a server's frames",
    CLIENT_LAYERS,
    [
        conversation(f"server {TITLES[state]}", OUTCOME, to_client(state, fields), None if n == 0 else [DISPOSITION])
        for n, (state, fields) in enumerate(STATES)
    ],
)
FRAMES = (SERVER, CLIENT)
