"""The properties of MQTT 5.0 (section 2.2.2): which exist, in which packets, and their codec."""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import msgspec

from fogline_edge.adapters.mqtt.wire import Kind, MalformedPacket, ProtocolError, Reader, Reason, binary, text, varint

MAX_USER_PROPERTIES = 128
"""How many user properties one packet may hold."""


class Properties(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What stands beside a packet's own fields; `None` for what was not sent. `user`: pairs, in order, repeats allowed.

    `subscription_id`: one in SUBSCRIBE; in a PUBLISH one for each subscription that it matches.
    """

    payload_format: int | None = None
    message_expiry_s: int | None = None
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    subscription_id: tuple[int, ...] = ()
    session_expiry_s: int | None = None
    assigned_client_id: str | None = None
    server_keep_alive_s: int | None = None
    authentication_method: str | None = None
    authentication_data: bytes | None = None
    request_problem_information: int | None = None
    will_delay_s: int | None = None
    request_response_information: int | None = None
    response_information: str | None = None
    server_reference: str | None = None
    reason_string: str | None = None
    receive_maximum: int | None = None
    topic_alias_maximum: int | None = None
    topic_alias: int | None = None
    maximum_qos: int | None = None
    retain_available: int | None = None
    user: tuple[tuple[str, str], ...] = ()
    maximum_packet_bytes: int | None = None
    wildcard_subscriptions: int | None = None
    subscription_ids: int | None = None
    shared_subscriptions: int | None = None


NONE = Properties()
"""No properties."""


class _Form(Enum):
    """How a property's value is encoded."""

    FLAG = auto()
    TWO = auto()
    FOUR = auto()
    NUMBERS = auto()
    TEXT = auto()
    BINARY = auto()
    PAIR = auto()


@dataclass(frozen=True, slots=True)
class _Rule:
    """One property: its field, its form, the packets that it may stand in, and whether 0 is a value."""

    field: str
    form: _Form
    kinds: frozenset[Kind]
    zero: bool = True


_CONNECT, _CONNACK, _WILL = Kind.CONNECT, Kind.CONNACK, Kind.WILL
_MESSAGE = frozenset({Kind.PUBLISH, Kind.WILL})
_BOTH = frozenset({_CONNECT, _CONNACK})
_ANSWERED = frozenset({Kind.PUBACK, Kind.PUBREC, Kind.PUBREL, Kind.PUBCOMP, Kind.SUBACK, Kind.UNSUBACK})
_REASONED = _ANSWERED | {_CONNACK, Kind.DISCONNECT, Kind.AUTH}
_ALL = _REASONED | _MESSAGE | {_CONNECT, Kind.SUBSCRIBE, Kind.UNSUBSCRIBE}


def _only(kind: Kind) -> frozenset[Kind]:
    return frozenset({kind})


_RULES = {
    0x01: _Rule("payload_format", _Form.FLAG, _MESSAGE),
    0x02: _Rule("message_expiry_s", _Form.FOUR, _MESSAGE),
    0x03: _Rule("content_type", _Form.TEXT, _MESSAGE),
    0x08: _Rule("response_topic", _Form.TEXT, _MESSAGE),
    0x09: _Rule("correlation_data", _Form.BINARY, _MESSAGE),
    0x0B: _Rule("subscription_id", _Form.NUMBERS, frozenset({Kind.PUBLISH, Kind.SUBSCRIBE}), zero=False),
    0x11: _Rule("session_expiry_s", _Form.FOUR, _BOTH | {Kind.DISCONNECT}),
    0x12: _Rule("assigned_client_id", _Form.TEXT, _only(_CONNACK)),
    0x13: _Rule("server_keep_alive_s", _Form.TWO, _only(_CONNACK)),
    0x15: _Rule("authentication_method", _Form.TEXT, _BOTH | {Kind.AUTH}),
    0x16: _Rule("authentication_data", _Form.BINARY, _BOTH | {Kind.AUTH}),
    0x17: _Rule("request_problem_information", _Form.FLAG, _only(_CONNECT)),
    0x18: _Rule("will_delay_s", _Form.FOUR, _only(_WILL)),
    0x19: _Rule("request_response_information", _Form.FLAG, _only(_CONNECT)),
    0x1A: _Rule("response_information", _Form.TEXT, _only(_CONNACK)),
    0x1C: _Rule("server_reference", _Form.TEXT, frozenset({_CONNACK, Kind.DISCONNECT})),
    0x1F: _Rule("reason_string", _Form.TEXT, _REASONED),
    0x21: _Rule("receive_maximum", _Form.TWO, _BOTH, zero=False),
    0x22: _Rule("topic_alias_maximum", _Form.TWO, _BOTH),
    0x23: _Rule("topic_alias", _Form.TWO, _only(Kind.PUBLISH)),
    0x24: _Rule("maximum_qos", _Form.FLAG, _only(_CONNACK)),
    0x25: _Rule("retain_available", _Form.FLAG, _only(_CONNACK)),
    0x26: _Rule("user", _Form.PAIR, _ALL),
    0x27: _Rule("maximum_packet_bytes", _Form.FOUR, _BOTH, zero=False),
    0x28: _Rule("wildcard_subscriptions", _Form.FLAG, _only(_CONNACK)),
    0x29: _Rule("subscription_ids", _Form.FLAG, _only(_CONNACK)),
    0x2A: _Rule("shared_subscriptions", _Form.FLAG, _only(_CONNACK)),
}


def read_properties(reader: Reader, kind: Kind) -> Properties:
    """The properties of a packet of `kind`, with their length before them."""
    length = reader.varint()
    if not length:
        return NONE
    inner = Reader(reader.take(length))
    found: dict[str, Any] = {}
    user: list[tuple[str, str]] = []
    numbers: list[int] = []
    while not inner.empty:
        rule = _RULES.get(inner.varint())
        if rule is None:
            raise MalformedPacket("there is no such property")
        if kind not in rule.kinds:
            raise ProtocolError(f"{rule.field} may not stand in {kind.name}")
        if rule.form is _Form.PAIR:
            user.append((inner.text(), inner.text()))
            if len(user) > MAX_USER_PROPERTIES:
                raise ProtocolError(f"more than {MAX_USER_PROPERTIES} user properties", Reason.QUOTA_EXCEEDED)
        elif rule.form is _Form.NUMBERS:
            if numbers and kind is not Kind.PUBLISH:
                raise ProtocolError(f"{rule.field} stands there twice")
            numbers.append(_number(inner.varint(), rule))
        elif rule.field in found:
            raise ProtocolError(f"{rule.field} stands there twice")
        else:
            found[rule.field] = _value(inner, rule)
    return Properties(user=tuple(user), subscription_id=tuple(numbers), **found)


def _value(reader: Reader, rule: _Rule) -> int | str | bytes:
    match rule.form:
        case _Form.TEXT:
            return reader.text()
        case _Form.BINARY:
            return reader.binary()
        case _Form.FLAG:
            value = reader.byte()
            if value > 1:
                raise ProtocolError(f"{rule.field} is neither 0 nor 1")
            return value
        case _Form.TWO:
            value = reader.two()
        case _:
            value = reader.four()
    return _number(value, rule)


def _number(value: int, rule: _Rule) -> int:
    if not value and not rule.zero:
        raise ProtocolError(f"{rule.field} is 0")
    return value


def write_properties(properties: Properties) -> bytes:
    """The inverse of `read_properties`."""
    if properties is NONE:
        return b"\0"
    parts = []
    for number, rule in _RULES.items():
        value = getattr(properties, rule.field)
        if rule.form is _Form.PAIR:
            parts += [bytes((number,)) + text(name) + text(each) for name, each in value]
        elif rule.form is _Form.NUMBERS:
            parts += [bytes((number,)) + varint(each) for each in value]
        elif value is not None:
            parts.append(bytes((number,)) + _encoded(value, rule.form))
    body = b"".join(parts)
    return varint(len(body)) + body


def _encoded(value: Any, form: _Form) -> bytes:
    match form:
        case _Form.TEXT:
            return text(value)
        case _Form.BINARY:
            return binary(value)
        case _:
            width = {_Form.FLAG: 1, _Form.TWO: 2, _Form.FOUR: 4}[form]
            return int(value).to_bytes(width)
