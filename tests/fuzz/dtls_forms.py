"""Datagrams of DTLS clients: a ClientHello through record, message and offer to the gateway's flight."""

from collections.abc import Mapping
from typing import Any

from fogline_edge.adapters.coap.dtls.client_hello import ClientHello, read_client_hello
from fogline_edge.adapters.coap.dtls.handshake import Handshake
from fogline_edge.adapters.coap.dtls.wire import Fragment, Record, fragments_of, records_of
from fogline_edge.credentials.credential_store import CredentialStore
from fuzz.forms import MISSING, Choice, Decoder, Field, Form, Layer

NUMBERS_1: list[Choice] = [(f"value/{each:#04x}", bytes((each,))) for each in range(256)]
NUMBERS_2: list[Choice] = [
    (f"value/{each:#06x}", each.to_bytes(2)) for each in (0, 1, 7, 0xFF, 0x100, 0xC0A8, 0xFEFC, 0xFEFD, 0xFEFF, 0xFFFF)
]
NUMBERS_3: list[Choice] = [(f"value/{each:#08x}", each.to_bytes(3)) for each in (0, 1, 11, 0xFF, 0x800, 0x801, 0xFFFFFF)]
BODIES: list[Choice] = [
    *((f"length/{size} zeros", bytes(size)) for size in (0, 1, 2, 3, 31, 32, 33, 255, 256, 2048, 60_000)),
    *((f"length/{size} ones", b"\xff" * size) for size in (1, 2, 3, 32, 255, 2048)),
    ("presence/missing", MISSING),
]
HELLO = {
    "version": b"\xfe\xfd",
    "random": bytes(32),
    "session id": b"\0",
    "cookie": b"\x10" + bytes(16),
    "suites": b"\0\4\xc0\xa8\xd0\3",
    "compressions": b"\1\0",
    "extensions": b"\0\x1a" + b"\0\x0a\0\4\0\2\0\x17" + b"\0\x17\0\0" + b"\0\x36\0\1\0" + b"\xff\1\0\1\0" + b"\xfa\xfa\0\0",
}


def _render(replaced: Mapping[str, Any]) -> bytes:
    parts = (replaced.get(name, given) for name, given in HELLO.items())
    body = b"".join(b"" if each is MISSING else bytes(each) for each in parts)
    size = len(body).to_bytes(3, "big") if len(body) < 1 << 24 else b"\xff\xff\xff"
    message = b"\1" + replaced.get("length", size) + replaced.get("message number", b"\0\1") + replaced.get("offset", b"\0\0\0")
    message += replaced.get("fragment length", size) + body
    length = replaced.get("record length", min(len(message), 0xFFFF).to_bytes(2))
    head = replaced.get("content type", b"\x16") + replaced.get("record version", b"\xfe\xfd") + replaced.get("epoch", b"\0\0")
    return bytes(head + bytes(6) + length + message)


def _first(records: list[Record]) -> bytes:
    return records[0].body if records else b""


def _offer(fragments: list[Fragment]) -> tuple[Fragment, ClientHello] | None:
    return (fragments[0], read_client_hello(fragments[0].body)) if fragments else None


def _flight(offer: tuple[Fragment, ClientHello] | None) -> None:
    if offer is not None:
        fragment, hello = offer
        handshake = Handshake(hello, fragment, 1, bytes(8), CredentialStore())
        assert handshake.flight()


DTLS = Decoder(
    "dtls ClientHello",
    (
        Layer("record", lambda datagram: _first(records_of(datagram))),
        Layer("message", lambda body: list(fragments_of(body))),
        Layer("offer", _offer),
        Layer("flight", _flight),
    ),
    [
        Form(
            "ClientHello",
            [
                Field("content type", "record", NUMBERS_1),
                *(Field(name, "record", NUMBERS_2) for name in ("record version", "epoch", "record length")),
                *(Field(name, "message", NUMBERS_3) for name in ("length", "offset", "fragment length")),
                Field("message number", "message", NUMBERS_2),
                *(Field(name, "offer", BODIES) for name in ("random", "session id", "cookie", "suites", "compressions")),
                Field("extensions", "offer", BODIES),
                Field("version", "flight", NUMBERS_2),
            ],
            _render,
        )
    ],
)
