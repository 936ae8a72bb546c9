"""Every type of AMQP 1.0, right and wrong, as bytes (OASIS AMQP 1.0 part 1, section 1.6)."""

import struct

from fogline_lab.amqp_bytes import NULL, deep, described, listed, mapped, symbol, text
from fuzz.forms import Choice
from fuzz.values import TEXTS

HUGE = 2**32 - 1


def binary(value: bytes) -> bytes:
    return b"\xb0" + struct.pack(">I", len(value)) + value


def long_text(value: bytes) -> bytes:
    return b"\xb1" + struct.pack(">I", len(value)) + value


def long_symbol(value: bytes) -> bytes:
    return b"\xb3" + struct.pack(">I", len(value)) + value


def uint(value: int) -> bytes:
    return b"\x70" + struct.pack(">I", value)


def ulong(value: int) -> bytes:
    return b"\x80" + struct.pack(">Q", value)


def char(value: int) -> bytes:
    return b"\x73" + struct.pack(">I", value)


def array(constructor: bytes, count: int, body: bytes = b"") -> bytes:
    return b"\xf0" + struct.pack(">II", len(body) + len(constructor) + 4, count) + constructor + body


def pairs(*items: bytes) -> bytes:
    """A map of any number of items, odd ones too."""
    body = b"".join(items)
    return b"\xd1" + struct.pack(">II", len(body) + 4, len(items)) + body


def deep_map(depth: int) -> bytes:
    inner = NULL
    for _ in range(depth):
        inner = mapped(symbol("k"), inner)
    return inner


def deep_described(depth: int) -> bytes:
    return b"\x00\x53\x01" * depth + NULL


UUID = b"\x98" + bytes(range(16))
SCALARS: list[Choice] = [
    ("type/null", NULL),
    ("type/true", b"\x41"),
    ("type/false", b"\x42"),
    ("type/boolean byte", b"\x56\x01"),
    ("value/boolean of 2", b"\x56\x02"),
    ("type/ubyte", b"\x50\xff"),
    ("type/ushort", b"\x60\xff\xff"),
    ("type/uint 0", b"\x43"),
    ("type/small uint", b"\x52\x07"),
    ("type/uint", uint(7)),
    ("value/uint max", uint(HUGE)),
    ("value/uint 2^31", uint(2**31)),
    ("type/ulong 0", b"\x44"),
    ("type/small ulong", b"\x53\x07"),
    ("type/ulong", ulong(7)),
    ("value/ulong max", ulong(2**64 - 1)),
    ("value/ulong 2^63", ulong(2**63)),
    ("type/byte", b"\x51\x80"),
    ("type/short", b"\x61\x80\x00"),
    ("type/small int", b"\x54\xff"),
    ("type/int", b"\x71\x80\x00\x00\x00"),
    ("type/small long", b"\x55\xff"),
    ("type/long", b"\x81" + struct.pack(">q", 7)),
    ("value/long min", b"\x81" + struct.pack(">q", -(2**63))),
    ("value/long max", b"\x81" + struct.pack(">q", 2**63 - 1)),
    ("type/float", b"\x72" + struct.pack(">f", 1.5)),
    ("value/float nan", b"\x72" + struct.pack(">f", float("nan"))),
    ("type/double", b"\x82" + struct.pack(">d", 1.5)),
    ("value/double nan", b"\x82" + struct.pack(">d", float("nan"))),
    ("value/double inf", b"\x82" + struct.pack(">d", float("-inf"))),
    ("value/double max", b"\x82" + struct.pack(">d", 1.7e308)),
    ("type/decimal32", b"\x74" + b"\xff" * 4),
    ("type/decimal64", b"\x84" + b"\xff" * 8),
    ("type/decimal128", b"\x94" + b"\xff" * 16),
    ("type/char", char(0x41)),
    ("value/char surrogate", char(0xD800)),
    ("value/char beyond unicode", char(0x110000)),
    ("value/char max", char(HUGE)),
    ("type/timestamp", b"\x83" + struct.pack(">q", 0)),
    ("value/timestamp min", b"\x83" + struct.pack(">q", -(2**63))),
    ("value/timestamp max", b"\x83" + struct.pack(">q", 2**63 - 1)),
    ("type/uuid", UUID),
    ("type/binary", b"\xa0\x03abc"),
    ("type/long binary", binary(b"\xff\x00")),
    ("type/string", text("x")),
    ("type/symbol", symbol("x")),
    ("value/symbol not ascii", long_symbol(b"\xc3\xa4\xff")),
]
"""Of one value each. All of them are well-formed but for their value."""
COMPOUND: list[Choice] = [
    ("type/list 0", b"\x45"),
    ("type/list 8", b"\xc0\x01\x00"),
    ("type/list of null", listed(NULL)),
    ("type/list of list", listed(listed())),
    ("type/list of char", listed(char(HUGE))),
    ("type/map 8", b"\xc1\x01\x00"),
    ("type/map", pairs()),
    ("type/map of symbol", pairs(symbol("k"), text("v"))),
    ("type/map of string", pairs(text("k"), text("v"))),
    ("type/map with a null key", pairs(NULL, text("v"))),
    ("type/map with a list key", pairs(listed(text("k")), text("v"))),
    ("type/map with a map key", pairs(pairs(), text("v"))),
    ("type/map with a binary key", pairs(b"\xa0\x01k", text("v"))),
    ("type/map with a uuid key", pairs(UUID, text("v"))),
    ("type/map with a nan key", pairs(b"\x82" + struct.pack(">d", float("nan")), text("v"))),
    ("type/map with a char value", pairs(symbol("k"), char(HUGE))),
    ("type/map with an array key", pairs(array(b"\xa3", 1, b"\x01k"), text("v"))),
    ("type/map with a described key", pairs(described(1, symbol("k")), text("v"))),
    ("presence/map with a key twice", pairs(symbol("k"), text("1"), symbol("k"), text("2"))),
    ("value/map of odd length", pairs(symbol("k"))),
    ("value/map of 3", pairs(symbol("k"), text("v"), symbol("w"))),
    ("type/array of symbol", array(b"\xa3", 2, b"\x01a\x01b")),
    ("type/array of null", array(b"\x40", 3)),
    ("type/array of list", array(b"\x45", 3)),
    ("type/array of map", array(b"\xc1", 1, b"\x01\x00")),
    ("type/array of described", array(b"\x00\x53\x01\xa3", 1, b"\x01a")),
    ("length/array of 0", array(b"\xa3", 0)),
    ("length/array of many nulls", array(b"\x40", HUGE)),
    ("length/array of 2^31 trues", array(b"\x41", 2**31)),
    ("length/array says too many", array(b"\xa3", 1000, b"\x01a")),
    ("type/described by ulong", described(0x28, listed())),
    ("type/described by symbol", b"\x00" + symbol("amqp:source:list") + listed()),
    ("type/described by null", b"\x00" + NULL + listed()),
    ("type/described by list", b"\x00" + listed() + listed()),
    ("type/described by map", b"\x00" + pairs(symbol("k"), NULL) + text("x")),
    ("type/described by char", b"\x00" + char(HUGE) + text("x")),
    ("type/described error", described(0x1D, listed(symbol("a:b"), text("c"), pairs()))),
    ("type/described error of odd fields", described(0x1D, listed(listed(), pairs(), symbol("x")))),
    ("type/described rejected", described(0x25, listed(listed()))),
    ("type/described coordinator", described(0x30, listed())),
    ("type/described unknown", described(0x7F, text("x"))),
    ("length/list of 5000", listed(*[NULL] * 5000)),
    ("length/map of 1000", pairs(*[each for n in range(500) for each in (symbol(f"k{n}"), NULL)])),
    ("depth/65", deep(65)),
    ("depth/600", deep(600)),
    ("depth/65 maps", deep_map(65)),
    ("depth/500 maps", deep_map(500)),
    ("depth/2000 described", deep_described(2000)),
]
TEXTUAL: list[Choice] = [
    choice
    for kind, value in TEXTS.items()
    if len(value) < 6000
    for choice in ((f"string {kind}", long_text(value)), (f"symbol {kind}", long_symbol(value)))
]
BROKEN: list[Choice] = [
    ("length/string beyond the end", b"\xb1\x7f\xff\xff\xff"),
    ("length/string of 4 GiB", b"\xb1\xff\xff\xff\xff"),
    ("length/binary beyond the end", b"\xb0\x00\x00\xff\xff"),
    ("length/list beyond the end", b"\xd0\x7f\xff\xff\xff\x00\x00\x00\x01"),
    ("length/list of 4 GiB", b"\xd0\xff\xff\xff\xff\xff\xff\xff\xff"),
    ("length/list says too many", b"\xd0\x00\x00\x00\x05\xff\xff\xff\xff\x40"),
    ("length/map says too many", b"\xd1\x00\x00\x00\x05\xff\xff\xff\xfe\x40"),
    ("length/list smaller than it is", b"\xd0\x00\x00\x00\x04\x00\x00\x00\x02\x40\x40"),
    ("length/list 8 of 0 bytes", b"\xc0\x00\x00"),
    ("length/array 8 of 0 bytes", b"\xe0\x00\x00"),
    ("type/constructor 0x3f", b"\x3f"),
    ("type/constructor 0xff", b"\xff"),
    ("type/constructor 0x00 alone", b"\x00"),
    ("type/nothing", b""),
]
"""These shift what stands after them: mostly the whole section becomes unreadable."""
ANY: list[Choice] = [*SCALARS, *COMPOUND, *TEXTUAL, *BROKEN]
LONG: list[Choice] = [
    ("length/string of 70000", long_text(b"x" * 70_000)),
    ("length/binary of 70000", binary(bytes(70_000))),
    ("depth/2000", deep(2000)),
    ("depth/50000", deep(50_000)),
]
"""What fits into no frame, only into a message of several."""
