"""Inputs of devices: MQTT packets through framing, packet and session; CoAP datagrams; HTTP requests; advertisements."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fogline import advertisement
from fogline.events.codec import encode_event
from fogline_edge.adapters.coap import wire
from fogline_edge.adapters.coap.paths import Paths
from fogline_edge.adapters.coap.requests import read_request, seconds, status
from fogline_edge.adapters.mqtt.protocol.framing import Framer
from fogline_edge.adapters.mqtt.protocol.packets import decode
from fogline_edge.adapters.mqtt.protocol.primitives import V3, V5
from fogline_edge.adapters.mqtt.session.effects import Forget, Keep, Store
from fogline_edge.settings import PathSettings
from fogline_lab.device.mqtt_talk import MqttTalk
from fogline_lab.events import make_event
from fuzz.dtls_forms import DTLS
from fuzz.forms import MISSING, Choice, Decoder, Field, Form, Layer
from fuzz.http_forms import HTTP
from fuzz.mqtt_forms import connects, to_server
from fuzz.values import BYTES, INTEGERS, TEXTS

MAX_PACKET = 300_000

# --- MQTT


class Packets(NamedTuple):
    """Bytes of a client, and their packets."""

    data: bytes
    packets: list[tuple[int, bytes]]


def _framed(data: bytes) -> Packets:
    framer = Framer(MAX_PACKET, None)
    framer.feed(data)
    found = []
    while (packet := framer.next_packet()) is not None:
        found.append(packet)
    return Packets(data, found)


def _decoded(version: int):
    def read(found: Packets) -> Packets:
        for header, body in found.packets:
            decode(header, body, version)
        return found

    return read


def _in_session(version: int, *, first: bool):
    """The session answers what it refuses with a packet of its own; nothing of it is raised."""

    def read(found: Packets) -> None:
        talk = MqttTalk(version, with_commands=True)
        if not first:
            talk.connect("lamp-1", clean_start=False)
        for header, body in found.packets:
            _through(talk, talk.session.receive(header, body, 0.0))
        _through(talk, talk.session.end(0.0).effects)

    return read


def _through(talk: MqttTalk, effects: Any) -> None:
    for effect in effects:
        if isinstance(effect, Keep | Forget) and effect.then is not None:
            _through(talk, effect.then())
        elif isinstance(effect, Store):
            _through(talk, talk.session.ack_order.committed(effect.pending) or ())


def _mqtt(version: int) -> Decoder:
    title = "5" if version == V5 else "3.1.1"
    layers = (
        Layer("framing", _framed),
        Layer("packet", _decoded(version)),
        Layer("session", _in_session(version, first=False)),
    )
    return Decoder(f"mqtt {title}", layers, to_server(version))


GREETING = Decoder(
    "mqtt CONNECT",
    (Layer("framing", _framed), Layer("packet", _decoded(V5)), Layer("session", _in_session(V5, first=True))),
    connects(),
)
MQTT = (_mqtt(V3), _mqtt(V5), GREETING)

# --- CoAP

OPTION_VALUES: list[Choice] = [
    *((kind, value) for kind, value in TEXTS.items() if len(value) < 6000),
    *((kind, value) for kind, value in BYTES.items() if len(value) < 6000),
    *((f"value/{number:#x}", number.to_bytes(width)) for width in (1, 2, 3, 4, 5, 9) for number in (0, 1, 7, 0xF, 0xFF)),
    ("presence/missing", MISSING),
]
OPTION_NUMBERS: list[Choice] = [(f"type/option {number}", number) for number in (*range(66), 258, 292, 2049, 65_000, 65_535)]
RAW: list[Choice] = [
    ("length/option beyond the end", b"\x0d\xff"),
    ("length/option of 64 KiB", b"\x0e\xff\xff"),
    ("value/reserved delta", b"\xf0"),
    ("value/reserved length", b"\x0f"),
    ("value/too high a number", b"\xe0\xff\xff\xe0\xff\xff"),
    ("length/64 options", b"\x00" * 64),
    ("length/65 options", b"\x00" * 65),
    ("length/1000 options", b"\x10" * 1000),
    ("presence/marker without payload", b"\xff"),
    ("presence/two markers", b"\xff\xff"),
    ("presence/nothing", b""),
]
FIRST: list[Choice] = [(f"value/{each:#04x}", bytes((each,))) for each in range(256)]
MESSAGE_IDS: list[Choice] = [("value/0", b"\0\0"), ("value/max", b"\xff\xff"), ("length/1", b"\0"), ("length/nothing", b"")]


def _coap(name: str, path: Sequence[bytes], query: Sequence[bytes], options: Mapping[int, bytes], payload: bytes) -> Form:
    given = [*((11, each) for each in path), *((15, each) for each in query), *options.items()]
    titles = [f"option {n} ({number})" for n, (number, _) in enumerate(given)]

    def render(replaced: Mapping[str, Any]) -> bytes:
        found = []
        for title, (number, value) in zip(titles, given, strict=True):
            kept = replaced.get(title, value)
            if kept is not MISSING:
                found.append((int(replaced.get(f"{title} number", number)), bytes(kept)))
        body = wire.encode(wire.CoapMessage(wire.MessageType.CON, wire.Code.POST, 7, b"tok", tuple(found), b""))[7:]
        head = replaced.get("first byte", b"\x43") + replaced.get("code", b"\x02") + replaced.get("message id", b"\0\7")
        tail = replaced.get("payload", payload)
        token = replaced.get("token", b"tok")
        return bytes(
            head + token + replaced.get("options", body) + replaced.get("raw", b"") + (b"\xff" + tail if tail else b"")
        )

    return Form(
        name,
        [
            Field("first byte", "message", FIRST),
            Field("code", "message", FIRST),
            Field("message id", "message", MESSAGE_IDS),
            Field("token", "message", [(kind, value[:300]) for kind, value in BYTES.items()]),
            Field("options", "message", RAW),
            Field("raw", "message", RAW),
            *(Field(title, "request", OPTION_VALUES) for title in titles),
            *(Field(f"{title} number", "request", OPTION_NUMBERS) for title in titles),
            Field("payload", "message", [(kind, value) for kind, value in {**TEXTS, **BYTES}.items()]),
        ],
        render,
    )


def _requested(message: wire.CoapMessage) -> Any:
    request = read_request(message)
    seconds(request, 60)
    return request


PATHS = Paths("acme", [PathSettings(path="plant/{device}/#")])
COAP = (
    Decoder(
        "coap",
        (
            Layer("message", wire.decode),
            Layer("request", _requested),
            Layer("path", lambda request: (PATHS.resolve(request.path), request)[1]),
            Layer("answer", lambda request: status(request) if request.path[0] == "command_response" else None),
        ),
        [
            _coap("event", [b"t", b"acme", b"lamp-1"], [b"hono-ttd=5"], {12: b"\x32"}, b"{}"),
            _coap("block", [b"plant", b"lamp-1", b"x"], [], {12: b"", 27: b"\x08", 60: b"\x10", 292: b"tag"}, b"x" * 16),
            _coap("answer", [b"command_response", b"acme", b"lamp-1", b"CMD-1"], [b"hono-cmd-status=200"], {}, b""),
        ],
    ),
)

# --- Bluetooth LE

STRUCTURES: Sequence[tuple[int, bytes]] = [
    (0x01, b"\x06"), (0x09, b"lamp"), (0x0A, b"\xf4"), (0x03, b"\x1a\x18"), (0x05, bytes(4)), (0x07, bytes(16)),
    (0x16, b"\xd2\xfc\x40\x01\x61"), (0x20, bytes(6)), (0x21, bytes(18)), (0xFF, b"\x99\x04\x05\x01\x02"),
]  # fmt: skip
AD_TYPES: list[Choice] = [(f"type/{each:#04x}", each) for each in range(256)]
AD_VALUES: list[Choice] = [
    *((kind, value[:254]) for kind, value in {**TEXTS, **BYTES}.items()),
    *((f"length/{width} bytes", bytes(width)) for width in range(24)),
    *((f"value/{width} ones", b"\xff" * width) for width in range(1, 24)),
]
AD_LENGTHS: list[Choice] = [(f"length/declared {each}", bytes((each,))) for each in range(256)]


def _advertisement() -> Form:
    titles = [f"AD structure {code:#04x}" for code, _ in STRUCTURES]

    def render(replaced: Mapping[str, Any]) -> bytes:
        parts = []
        for title, (code, value) in zip(titles, STRUCTURES, strict=True):
            body = bytes((replaced.get(f"{title} type", code),)) + replaced.get(title, value)
            parts.append(replaced.get(f"{title} length", bytes((len(body),))) + body)
        return b"".join(parts) + bytes(replaced.get("rest", b""))

    rest: list[Choice] = [("presence/zeros", bytes(9)), ("presence/more after the end", b"\0\1"), ("length/5000", bytes(5000))]
    return Form(
        "advertisement",
        [
            *(Field(title, "structures", AD_VALUES) for title in titles),
            *(Field(f"{title} type", "structures", AD_TYPES) for title in titles),
            *(Field(f"{title} length", "structures", AD_LENGTHS) for title in titles),
            Field("rest", "structures", rest),
        ],
        render,
    )


def _stored(found: advertisement.Advertisement) -> None:
    encode_event(make_event(data=advertisement.encode(found)))


HEARD: list[Choice] = [
    *((kind, value.decode("utf-8", "surrogateescape")) for kind, value in TEXTS.items()),
    *((kind, str(value)) for kind, value in INTEGERS.items()),
]
BLUETOOTH = (
    Decoder("ble advertisement", (Layer("structures", advertisement.decode), Layer("event", _stored)), [_advertisement()]),
    Decoder(
        "ble properties",
        (Layer("heard", advertisement.decode_heard),),
        [
            Form(
                "heard",
                [Field("address", "heard", HEARD), Field("rssi", "heard", HEARD), Field("rest", "heard", HEARD)],
                lambda replaced: "address={}&rssi={}&{}".format(
                    replaced.get("address", "A"), replaced.get("rssi", "-1"), replaced.get("rest", "")
                ),
            )
        ],
    ),
)
DEVICES = (*MQTT, *COAP, DTLS, HTTP, *BLUETOOTH)
