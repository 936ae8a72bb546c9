"""Forms of MQTT 3.1.1 and 5.0 packets: every field of every control packet, and every property in each of them."""

from collections.abc import Mapping, Sequence
from typing import Any

from fogline_edge.adapters.mqtt.protocol.primitives import V3, V5, binary, text, varint
from fuzz.forms import MISSING, Choice, Field, Form
from fuzz.values import BYTES, TEXTS

Parts = Sequence[tuple[str, bytes]]

STRINGS: list[Choice] = [
    *((kind, binary(value)) for kind, value in TEXTS.items() if len(value) < 65_536),
    ("length/beyond the end", b"\xff\xff"),
    ("length/cut", b"\x00"),
    ("length/nothing", b""),
    ("type/no length", b"abc"),
]
BINARIES: list[Choice] = [
    *((kind, binary(value)) for kind, value in {**BYTES, **TEXTS}.items() if len(value) < 65_536),
    ("length/beyond the end", b"\xff\xff"),
    ("length/nothing", b""),
]
ONE: list[Choice] = [(f"value/{value:#04x}", bytes((value,))) for value in range(256)] + [("length/nothing", b"")]
TWO: list[Choice] = [
    *((f"value/{value}", value.to_bytes(2)) for value in (0, 1, 2, 127, 128, 32_767, 65_535)),
    ("length/nothing", b""),
    ("length/1", b"\x01"),
    ("length/3", b"\x00\x01\x02"),
]
FOUR: list[Choice] = [
    *((f"value/{value}", value.to_bytes(4)) for value in (0, 1, 2**31 - 1, 2**31, 2**32 - 1)),
    ("length/nothing", b""),
    ("length/3", b"\x00\x01\x02"),
]
VARINTS: list[Choice] = [
    *((f"value/{value}", varint(value)) for value in (0, 1, 127, 128, 16_383, 16_384, 268_435_455)),
    ("length/nothing", b""),
    ("length/5 bytes", b"\xff\xff\xff\xff\x7f"),
    ("length/open", b"\x80"),
    ("value/longer than needed", b"\x80\x00"),
]
TOPICS: list[Choice] = [
    *STRINGS,
    ("value/wildcard", text("plant/#")),
    ("value/plus", text("+/a")),
    ("value/command", text("command///req/")),
    ("value/response", text("command///res/CMD-1/200")),
    ("value/response of no status", text("command///res/CMD-1/abc")),
    ("value/status of full width", text("command///res/CMD-1/２００")),  # noqa: RUF001
    ("value/foreign tenant", text("telemetry/other/lamp-1")),
    ("value/property bag", text("t/?a=%ff&b=%00&hono-ttd=x")),
    ("value/deep", text("/" * 2000)),
    ("value/dollar", text("$SYS/x")),
    ("value/shared", text("$share/a/b")),
]
PROPERTY_VALUES: Sequence[tuple[int, bytes]] = [
    (0x01, b"\x01"), (0x02, bytes(4)), (0x03, text("text/plain")), (0x08, text("a")), (0x09, binary(b"c")),
    (0x0B, b"\x01"), (0x11, b"\0\0\0\x3c"), (0x12, text("x")), (0x13, b"\0\x05"), (0x15, text("m")), (0x16, binary(b"d")),
    (0x17, b"\x01"), (0x18, bytes(4)), (0x19, b"\x01"), (0x1A, text("r")), (0x1C, text("s")), (0x1F, text("why")),
    (0x21, b"\0\x05"), (0x22, b"\0\x05"), (0x23, b"\0\x01"), (0x24, b"\x01"), (0x25, b"\x01"), (0x26, text("k") + text("v")),
    (0x27, b"\0\1\0\0"), (0x28, b"\x01"), (0x29, b"\x01"), (0x2A, b"\x01"),
]  # fmt: skip
"""Every property of section 2.2.2.2 with a right value."""
_WRONG: list[Choice] = [
    ("value/nothing", b""),
    ("value/zeros", bytes(4)),
    ("value/ones", b"\xff\xff\xff\xff"),
    ("value/string", text("x")),
    ("value/empty string", text("")),
    ("value/nul", text("a\0b")),
    ("value/not utf-8", binary(b"\xff\xfe")),
    ("value/surrogate", binary(b"\xed\xa0\x80")),
    ("value/long string", text("x" * 60_000)),
    ("value/wildcard", text("a/#")),
    ("value/2", b"\x02"),
]


def _properties() -> list[Choice]:
    """The whole list of properties: each right one, twice, each with wrong values, unknown ones, many."""
    found: list[Choice] = [("presence/none", b"\0"), ("presence/missing", b"")]
    for number, value in PROPERTY_VALUES:
        one = bytes((number,)) + value
        found += [(f"type/property {number:#04x}", varint(len(one)) + one)]
        found += [(f"presence/property {number:#04x} twice", varint(2 * len(one)) + one * 2)]
        for kind, wrong in _WRONG:
            body = bytes((number,)) + wrong
            found.append((f"{kind} in property {number:#04x}", varint(len(body)) + body))
    for number in (0x00, 0x04, 0x2B, 0x7F):
        found.append((f"type/unknown property {number:#04x}", varint(2) + bytes((number, 1))))
    found.append(("type/property of two bytes", varint(3) + b"\x80\x01\x01"))
    for count in (128, 129, 5000):
        body = (b"\x26" + text("k") + text("v")) * count
        found.append((f"length/{count} user properties", varint(len(body)) + body))
    found += [(f"length {kind}", value) for kind, value in VARINTS]
    return found


PROPERTIES = _properties()
BY_NAME: Mapping[str, Sequence[Choice]] = {
    "properties": PROPERTIES,
    "will properties": PROPERTIES,
    "packet id": TWO,
    "keep alive": TWO,
    "flags": ONE,
    "level": ONE,
    "code": ONE,
    "options": ONE,
    "protocol": STRINGS,
    "client id": STRINGS,
    "username": STRINGS,
    "password": BINARIES,
    "will topic": TOPICS,
    "will payload": BINARIES,
    "topic": TOPICS,
    "filter": TOPICS,
    "payload": [*((kind, value) for kind, value in {**TEXTS, **BYTES}.items()), ("depth/100000", b"[" * 100_000)],
}


def packet_form(name: str, header: int, parts: Parts, aim: str) -> Form:
    """A packet. Its remaining length is right unless that itself is replaced."""

    def render(replaced: Mapping[str, Any]) -> bytes:
        body = b"".join(bytes(replaced.get(part, value)) for part, value in parts if replaced.get(part) is not MISSING)
        first = replaced.get("header", bytes((header,)))
        return bytes(first + replaced.get("remaining length", varint(len(body))) + body + replaced.get("rest", b""))

    fields = [
        Field("header", "framing", ONE),
        Field("remaining length", "framing", VARINTS),
        Field("rest", aim, [("presence/a byte more", b"\0"), ("presence/a packet more", b"\xc0\0")]),
        *(Field(part, aim, [*BY_NAME[part.rstrip(" 0123456789")], ("presence/missing", MISSING)]) for part, _ in parts),
    ]
    return Form(name, fields, render)


def connect(version: int) -> Parts:
    some = [("properties", b"\0")] if version == V5 else []
    will = [("will properties", b"\0")] if version == V5 else []
    return [
        ("protocol", text("MQTT")), ("level", bytes((version,))), ("flags", b"\xee"), ("keep alive", b"\0\x3c"), *some,
        ("client id", text("lamp-1")), *will, ("will topic", text("t")), ("will payload", binary(b"gone")),
        ("username", text("u")), ("password", binary(b"p")),
    ]  # fmt: skip


def to_server(version: int) -> list[Form]:
    """Packets of a client after its CONNECT."""
    some = [("properties", b"\0")] if version == V5 else []
    coded = [("code", b"\0"), *some] if version == V5 else []
    number = ("packet id", b"\0\x07")
    two = [("filter", text("a")), ("options", b"\1")]
    named: list[tuple[str, int, Parts]] = [
        ("PUBLISH QoS 0", 0x30, [("topic", text("t")), *some, ("payload", b"{}")]),
        ("PUBLISH QoS 1", 0x32, [("topic", text("t")), number, *some, ("payload", b"{}")]),
        ("PUBLISH QoS 2 again", 0x3C, [("topic", text("t//lamp-2")), number, *some, ("payload", b"{}")]),
        ("PUBACK", 0x40, [number, *coded]),
        ("PUBREC", 0x50, [number, *coded]),
        ("PUBREL", 0x62, [number, *coded]),
        ("PUBCOMP", 0x70, [number, *coded]),
        ("SUBSCRIBE", 0x82, [number, *some, ("filter", text("command///req/#")), ("options", b"\x01")]),
        ("SUBSCRIBE to two", 0x82, [number, *some, *two, ("filter 2", text("b")), ("options 2", b"\0")]),
        ("UNSUBSCRIBE", 0xA2, [number, *some, ("filter", text("command///req/#"))]),
        ("PINGREQ", 0xC0, []),
        ("DISCONNECT", 0xE0, coded),
        *([("AUTH", 0xF0, coded)] if version == V5 else []),
    ]  # fmt: skip
    return [
        packet_form(f"{name} {'5' if version == V5 else '3.1.1'}", header, parts, "packet") for name, header, parts in named
    ]


def to_client() -> list[Form]:
    """Packets of an MQTT 5 broker."""
    some = ("properties", b"\0")
    number = ("packet id", b"\0\x01")
    named: list[tuple[str, int, Parts]] = [
        ("CONNACK", 0x20, [("flags", b"\0"), ("code", b"\0"), some]),
        ("SUBACK", 0x90, [number, some, ("code", b"\x01")]),
        ("PUBLISH QoS 0 down", 0x30, [("topic", text("plant/lamp-1/t")), some, ("payload", b"{}")]),
        ("PUBLISH QoS 1 down", 0x32, [("topic", text("plant/lamp-1/t")), number, some, ("payload", b"{}")]),
        ("PUBLISH QoS 2 down", 0x34, [("topic", text("plant/lamp-1/t")), number, some, ("payload", b"{}")]),
        ("PUBACK down", 0x40, [number, ("code", b"\0"), some]),
        ("PUBREL down", 0x62, [number, ("code", b"\0"), some]),
        ("UNSUBACK", 0xB0, [number, some, ("code", b"\0")]),
        ("PINGRESP", 0xD0, []),
        ("DISCONNECT down", 0xE0, [("code", b"\x8b"), some]),
        ("AUTH down", 0xF0, [("code", b"\x18"), some]),
    ]
    return [packet_form(name, header, parts, "packet") for name, header, parts in named]


def connects() -> list[Form]:
    return [packet_form(f"CONNECT {name}", 0x10, connect(version), "packet") for version, name in ((V3, "3.1.1"), (V5, "5"))]
