"""The properties of MQTT 5.0 (section 2.2.2): their packets, their forms, and their codec."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import msgspec

from fogline_edge.adapters.mqtt.protocol.primitives import (
    MalformedPacket,
    PacketType,
    ProtocolError,
    Reader,
    Reason,
    binary,
    text,
    topic_name,
    varint,
)

MAX_USER_PROPERTIES = 128
"""The most user properties in one packet."""


class Properties(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The properties of one packet; `None` marks an absent one. `user`: pairs in order, repeats allowed.

    `subscription_id`: one in SUBSCRIBE; in a PUBLISH one for each matching subscription.
    The field names are part of the stored session records (`session_state`): a renamed field makes old records unreadable.
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


class _Form(IntEnum):
    """The encoding of a property's value; that of an integer is its width in bytes."""

    FLAG = 1
    TWO = 2
    FOUR = 4
    VARINTS = 5
    TEXT = 6
    TOPIC = 7
    BINARY = 8
    PAIR = 9


@dataclass(frozen=True, slots=True)
class _Rule:
    """One property: its field, its form, the packets that may carry it, and `zero`: 0 is a valid value."""

    field: str
    form: _Form
    kinds: frozenset[PacketType]
    zero: bool = True


_CONNECT, _CONNACK, _WILL = PacketType.CONNECT, PacketType.CONNACK, PacketType.WILL
_MESSAGE = frozenset({PacketType.PUBLISH, PacketType.WILL})
_HANDSHAKE = frozenset({_CONNECT, _CONNACK})
_ACKNOWLEDGEMENTS = frozenset(
    {PacketType.PUBACK, PacketType.PUBREC, PacketType.PUBREL, PacketType.PUBCOMP, PacketType.SUBACK, PacketType.UNSUBACK}
)
_WITH_REASON = _ACKNOWLEDGEMENTS | {_CONNACK, PacketType.DISCONNECT, PacketType.AUTH}
_ALL = _WITH_REASON | _MESSAGE | {_CONNECT, PacketType.SUBSCRIBE, PacketType.UNSUBSCRIBE}


_RULES = {
    0x01: _Rule("payload_format", _Form.FLAG, _MESSAGE),
    0x02: _Rule("message_expiry_s", _Form.FOUR, _MESSAGE),
    0x03: _Rule("content_type", _Form.TEXT, _MESSAGE),
    0x08: _Rule("response_topic", _Form.TOPIC, _MESSAGE),
    0x09: _Rule("correlation_data", _Form.BINARY, _MESSAGE),
    0x0B: _Rule("subscription_id", _Form.VARINTS, frozenset({PacketType.PUBLISH, PacketType.SUBSCRIBE}), zero=False),
    0x11: _Rule("session_expiry_s", _Form.FOUR, _HANDSHAKE | {PacketType.DISCONNECT}),
    0x12: _Rule("assigned_client_id", _Form.TEXT, frozenset({_CONNACK})),
    0x13: _Rule("server_keep_alive_s", _Form.TWO, frozenset({_CONNACK})),
    0x15: _Rule("authentication_method", _Form.TEXT, _HANDSHAKE | {PacketType.AUTH}),
    0x16: _Rule("authentication_data", _Form.BINARY, _HANDSHAKE | {PacketType.AUTH}),
    0x17: _Rule("request_problem_information", _Form.FLAG, frozenset({_CONNECT})),
    0x18: _Rule("will_delay_s", _Form.FOUR, frozenset({_WILL})),
    0x19: _Rule("request_response_information", _Form.FLAG, frozenset({_CONNECT})),
    0x1A: _Rule("response_information", _Form.TEXT, frozenset({_CONNACK})),
    0x1C: _Rule("server_reference", _Form.TEXT, frozenset({_CONNACK, PacketType.DISCONNECT})),
    0x1F: _Rule("reason_string", _Form.TEXT, _WITH_REASON),
    0x21: _Rule("receive_maximum", _Form.TWO, _HANDSHAKE, zero=False),
    0x22: _Rule("topic_alias_maximum", _Form.TWO, _HANDSHAKE),
    0x23: _Rule("topic_alias", _Form.TWO, frozenset({PacketType.PUBLISH})),
    0x24: _Rule("maximum_qos", _Form.FLAG, frozenset({_CONNACK})),
    0x25: _Rule("retain_available", _Form.FLAG, frozenset({_CONNACK})),
    0x26: _Rule("user", _Form.PAIR, _ALL),
    0x27: _Rule("maximum_packet_bytes", _Form.FOUR, _HANDSHAKE, zero=False),
    0x28: _Rule("wildcard_subscriptions", _Form.FLAG, frozenset({_CONNACK})),
    0x29: _Rule("subscription_ids", _Form.FLAG, frozenset({_CONNACK})),
    0x2A: _Rule("shared_subscriptions", _Form.FLAG, frozenset({_CONNACK})),
}


def read_properties(reader: Reader, kind: PacketType) -> Properties:
    """Read the length and the properties of a packet of `kind`. Raises `PacketError`."""
    length = reader.varint()
    if not length:
        return NONE
    inner = Reader(reader.take(length))
    found: dict[str, Any] = {}
    user: list[tuple[str, str]] = []
    subscription_ids: list[int] = []
    while inner.at < inner.end:
        rule = _RULES.get(inner.varint())
        if rule is None:
            raise MalformedPacket("unknown property")
        if kind not in rule.kinds:
            raise ProtocolError(f"{kind.name} cannot carry {rule.field}")
        if rule.form is _Form.PAIR:
            user.append((inner.text(), inner.text()))
            if len(user) > MAX_USER_PROPERTIES:
                raise ProtocolError(f"more than {MAX_USER_PROPERTIES} user properties", Reason.QUOTA_EXCEEDED)
        elif rule.form is _Form.VARINTS:
            if subscription_ids and kind is not PacketType.PUBLISH:
                raise ProtocolError(f"{rule.field} occurs twice")
            subscription_ids.append(_checked(inner.varint(), rule))
        elif rule.field in found:
            raise ProtocolError(f"{rule.field} occurs twice")
        else:
            found[rule.field] = _value(inner, rule)
    return Properties(user=tuple(user), subscription_id=tuple(subscription_ids), **found)


def _value(reader: Reader, rule: _Rule) -> int | str | bytes:
    match rule.form:
        case _Form.TEXT:
            return reader.text()
        case _Form.TOPIC:
            return topic_name(reader.binary())
        case _Form.BINARY:
            return reader.binary()
    value = int.from_bytes(reader.take(rule.form))
    if rule.form is _Form.FLAG and value > 1:
        raise ProtocolError(f"{rule.field} is neither 0 nor 1")
    return _checked(value, rule)


def _checked(value: int, rule: _Rule) -> int:
    if not value and not rule.zero:
        raise ProtocolError(f"{rule.field} is 0")
    return value


def write_properties(properties: Properties) -> bytes:
    """Encode the length and the properties, as `read_properties` reads them."""
    if properties is NONE:
        return b"\0"
    parts = []
    for identifier, rule in _RULES.items():
        value = getattr(properties, rule.field)
        if rule.form is _Form.PAIR:
            parts += [bytes((identifier,)) + text(name) + text(each) for name, each in value]
        elif rule.form is _Form.VARINTS:
            parts += [bytes((identifier,)) + varint(each) for each in value]
        elif value is not None:
            parts.append(bytes((identifier,)) + _encoded(value, rule.form))
    body = b"".join(parts)
    return varint(len(body)) + body


def _encoded(value: Any, form: _Form) -> bytes:
    if form in (_Form.TEXT, _Form.TOPIC):
        return text(value)
    return binary(value) if form is _Form.BINARY else int(value).to_bytes(form)
