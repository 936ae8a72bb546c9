"""Forms of AMQP messages: every field of every section, and what Fogline reads of it."""

from collections.abc import Mapping
from typing import Any

from fogline_lab.amqp_bytes import NULL, described, symbol, text
from fuzz.amqp_values import ANY, LONG, UUID, binary, long_symbol, long_text, pairs, uint
from fuzz.forms import MISSING, Choice, Field, Form

HEADER, DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS, PROPERTIES, APPLICATION, DATA, SEQUENCE, VALUE, FOOTER = (
    0x70, 0x71, 0x72, 0x73, 0x74, 0x75, 0x76, 0x77, 0x78,
)  # fmt: skip
HEADER_FIELDS = ("durable", "priority", "ttl", "first-acquirer", "delivery-count")
PROPERTY_FIELDS = (
    "message-id", "user-id", "to", "subject", "reply-to", "correlation-id", "content-type", "content-encoding",
    "absolute-expiry-time", "creation-time", "group-id", "group-sequence", "reply-to-group-id",
)  # fmt: skip
SECTIONS: list[Choice] = [
    ("presence/no body", b""),
    ("presence/two data sections", described(DATA, b"\xa0\x01x") * 2),
    ("presence/500 data sections", described(DATA, b"\xa0\x01x") * 500),
    ("type/sequence", described(SEQUENCE, b"\xc0\x03\x01\x52\x01")),
    ("type/unknown section", described(0x79, b"\xa0\x01x")),
    ("type/described by symbol", b"\x00" + symbol("amqp:data:binary") + b"\xa0\x01x"),
    *((f"value {kind}", described(VALUE, value)) for kind, value in [*ANY, *LONG]),
    *((f"data {kind}", described(DATA, value)) for kind, value in [*ANY, *LONG]),
]


def typed(value: object) -> bytes:
    """A plain value as AMQP."""
    match value:
        case None:
            return NULL
        case bool():
            return b"\x41" if value else b"\x42"
        case str():
            return long_text(value.encode())
        case bytes():
            return binary(value)
        case int():
            return b"\x81" + value.to_bytes(8, "big", signed=True)
    raise TypeError(type(value))


def described_list(
    code: int, names: tuple[str, ...], given: Mapping[str, bytes], replaced: Mapping[str, Any], at: str
) -> bytes:
    """A section, frame or state that is a list of fields."""
    whole = replaced.get(at)
    if whole is not None:
        return b"" if whole is MISSING else described(code, whole)
    items = [bytes(replaced.get(f"{at}/{name}", given.get(name, NULL))) for name in names]
    body = b"".join(items)
    return described(code, b"\xd0" + (len(body) + 4).to_bytes(4, "big") + len(items).to_bytes(4, "big") + body)


def message_form(
    name: str,
    *,
    body: bytes = b"",
    header: Mapping[str, bytes] | None = None,
    properties: Mapping[str, bytes] | None = None,
    application: Mapping[str, object] | None = None,
    fields_aim: str = "message",
    properties_aim: str = "message",
) -> Form:
    """A message. `fields_aim`: the layer that reads the application properties; `properties_aim`: that of the others."""
    head, props, told = header or {}, properties or {}, application or {}

    def render(replaced: Mapping[str, Any]) -> bytes:
        parts = [described_list(HEADER, HEADER_FIELDS, head, replaced, "header")]
        for code, at in ((DELIVERY_ANNOTATIONS, "delivery-annotations"), (MESSAGE_ANNOTATIONS, "message-annotations")):
            if at in replaced:
                parts.append(described(code, replaced[at]))
        parts.append(described_list(PROPERTIES, PROPERTY_FIELDS, props, replaced, "properties"))
        parts.append(_application(told, replaced))
        parts.append(replaced.get("body", described(DATA, binary(body))))
        if "footer" in replaced:
            parts.append(described(FOOTER, replaced["footer"]))
        return b"".join(parts)

    section = [*ANY, *LONG, ("presence/missing", MISSING)]
    fields = [
        Field("header", "message", section),
        *(Field(f"header/{each}", "message", ANY) for each in HEADER_FIELDS),
        Field("delivery-annotations", "message", [*ANY, *LONG]),
        Field("message-annotations", "message", [*ANY, *LONG]),
        Field("properties", "message", section),
        *(Field(f"properties/{each}", properties_aim, ANY) for each in PROPERTY_FIELDS),
        Field("application", "message", section),
        *(Field(f"application/{each}", fields_aim, [*ANY, *LONG, *_keys(each, value)]) for each, value in told.items()),
        Field("body", "message", SECTIONS),
        Field("footer", "message", [*ANY, *LONG]),
    ]
    return Form(name, fields, render)


class Member(bytes):
    """Replaces a key and its value, not the value alone."""


def _keys(name: str, value: object) -> list[Choice]:
    """Yield further faults of a member of a map."""
    right = typed(value)
    return [
        ("presence/missing", MISSING),
        ("presence/twice", Member(long_text(name.encode()) + right + long_text(name.encode()) + NULL)),
        ("type/symbol key", Member(long_symbol(name.encode()) + right)),
        ("type/uint key", Member(uint(7) + right)),
        ("type/null key", Member(NULL + right)),
        ("type/uuid key", Member(UUID + right)),
        ("type/list key", Member(b"\x45" + right)),
        ("type/map key", Member(pairs(text("k"), NULL) + right)),
        ("value/key not utf-8", Member(long_text(b"\xff\xfe") + right)),
    ]


def _application(told: Mapping[str, object], replaced: Mapping[str, Any]) -> bytes:
    whole = replaced.get("application")
    if whole is not None:
        return b"" if whole is MISSING else described(APPLICATION, whole)
    items = b""
    count = 0
    for name, value in told.items():
        choice = replaced.get(f"application/{name}")
        if choice is MISSING:
            continue
        if isinstance(choice, Member):
            items += choice
            count += 4 if choice.count(long_text(name.encode())) == 2 else 2
        else:
            items += long_text(name.encode()) + (typed(value) if choice is None else choice)
            count += 2
    return described(APPLICATION, b"\xd1" + (len(items) + 4).to_bytes(4, "big") + count.to_bytes(4, "big") + items)
