"""The control packets of MQTT 3.1.1 and 5.0 (section 3 of both): values, and their codec.

`decode` takes what the framing gives (first byte and body; the flags there are checked by the framing) and the
protocol level that the connection speaks; every packet has `encode(version)`. Decoding raises `PacketError` and
nothing else. A CONNECT brings its own level.
"""

from collections.abc import Callable
from functools import lru_cache

import msgspec

from fogline_edge.adapters.mqtt.properties import NONE, Properties, read_properties, write_properties
from fogline_edge.adapters.mqtt.wire import (
    V3,
    V5,
    Kind,
    MalformedPacket,
    ProtocolError,
    Reader,
    Reason,
    binary,
    packet,
    text,
    topic_filter,
    topic_name,
)

MAX_FILTERS = 128
"""How many topic filters one SUBSCRIBE or UNSUBSCRIBE may hold."""
_CACHED_TOPIC_BYTES = 256


class Will(msgspec.Struct, frozen=True):
    """What is to be published for the client if it goes without a word (5: 3.1.2.5)."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    properties: Properties = NONE


class Connect(msgspec.Struct, frozen=True, kw_only=True):
    """CONNECT (3.1). `clean_start` is 3.1.1's clean session."""

    version: int
    client_id: str
    clean_start: bool = True
    keep_alive_s: int = 0
    will: Will | None = None
    username: str | None = None
    password: bytes | None = None
    properties: Properties = NONE

    def encode(self, version: int) -> bytes:
        """The packet as bytes; `version` is what it says itself."""
        assert version == self.version
        flags = self.clean_start << 1 | (self.password is not None) << 6 | (self.username is not None) << 7
        parts = [binary(self.client_id.encode())]
        if self.will is not None:
            flags |= 0x04 | self.will.qos << 3 | self.will.retain << 5
            parts += [_properties(self.will.properties, version), text(self.will.topic), binary(self.will.payload)]
        if self.username is not None:
            parts.append(text(self.username))
        if self.password is not None:
            parts.append(binary(self.password))
        head = text("MQTT") + bytes((version, flags)) + self.keep_alive_s.to_bytes(2)
        return packet(Kind.CONNECT << 4, head + _properties(self.properties, version) + b"".join(parts))


class Connack(msgspec.Struct, frozen=True, kw_only=True):
    """CONNACK (3.2). `code` is a return code of 3.1.1 or a reason code of 5."""

    code: int = 0
    session_present: bool = False
    properties: Properties = NONE

    def encode(self, version: int) -> bytes:
        """The packet as bytes."""
        body = bytes((self.session_present, self.code)) + _properties(self.properties, version)
        return packet(Kind.CONNACK << 4, body)


class Publish(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """PUBLISH (3.3). `packet_id` is 0 at QoS 0; `topic` is empty where the properties name an alias for it."""

    topic: str
    payload: bytes
    qos: int = 0
    packet_id: int = 0
    dup: bool = False
    retain: bool = False
    properties: Properties = NONE

    def encode(self, version: int) -> bytes:
        """The packet as bytes."""
        number = self.packet_id.to_bytes(2) if self.qos else b""
        header = Kind.PUBLISH << 4 | self.dup << 3 | self.qos << 1 | self.retain
        return packet(header, text(self.topic) + number + _properties(self.properties, version) + self.payload)


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """PUBACK, PUBREC, PUBREL or PUBCOMP (3.4 to 3.7), by `kind`. `code` exists in 5 only."""

    kind: Kind
    packet_id: int
    code: int = 0
    properties: Properties = NONE

    def encode(self, version: int) -> bytes:
        """The packet as bytes, as short as it may be."""
        body = self.packet_id.to_bytes(2)
        if version == V5 and (self.code or self.properties != NONE):
            body += bytes((self.code,))
            if self.properties != NONE:
                body += write_properties(self.properties)
        return packet(self.kind << 4 | (0x02 if self.kind is Kind.PUBREL else 0x00), body)


class Subscribe(msgspec.Struct, frozen=True, kw_only=True):
    """SUBSCRIBE (3.8): pairs of topic filter and options byte."""

    packet_id: int
    filters: tuple[tuple[str, int], ...]
    properties: Properties = NONE

    def encode(self, version: int) -> bytes:
        """The packet as bytes."""
        parts = b"".join(text(each) + bytes((options,)) for each, options in self.filters)
        return packet(Kind.SUBSCRIBE << 4 | 0x02, self.packet_id.to_bytes(2) + _properties(self.properties, version) + parts)


class Unsubscribe(msgspec.Struct, frozen=True, kw_only=True):
    """UNSUBSCRIBE (3.10)."""

    packet_id: int
    filters: tuple[str, ...]
    properties: Properties = NONE

    def encode(self, version: int) -> bytes:
        """The packet as bytes."""
        parts = b"".join(map(text, self.filters))
        return packet(Kind.UNSUBSCRIBE << 4 | 0x02, self.packet_id.to_bytes(2) + _properties(self.properties, version) + parts)


class Suback(msgspec.Struct, frozen=True, kw_only=True):
    """SUBACK or UNSUBACK (3.9, 3.11), by `kind`: a code a filter, but for an UNSUBACK of 3.1.1, which has none."""

    kind: Kind
    packet_id: int
    codes: tuple[int, ...] = ()
    properties: Properties = NONE

    def encode(self, version: int) -> bytes:
        """The packet as bytes."""
        body = self.packet_id.to_bytes(2) + _properties(self.properties, version)
        if version == V5 or self.kind is Kind.SUBACK:
            body += bytes(self.codes)
        return packet(self.kind << 4, body)


class Ping(msgspec.Struct, frozen=True):
    """PINGREQ or PINGRESP (3.12, 3.13), by `kind`."""

    kind: Kind

    def encode(self, version: int) -> bytes:  # noqa: ARG002 (one shape for all packets)
        """The packet as bytes."""
        return bytes((self.kind << 4, 0))


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """DISCONNECT or AUTH (3.14, 3.15), by `kind`. 3.1.1 has no code and no AUTH."""

    kind: Kind = Kind.DISCONNECT
    code: int = 0
    properties: Properties = NONE

    def encode(self, version: int) -> bytes:
        """The packet as bytes, as short as it may be."""
        body = b""
        if version == V5 and (self.code or self.properties != NONE):
            body = bytes((self.code,))
            if self.properties != NONE:
                body += write_properties(self.properties)
        return packet(self.kind << 4, body)


Packet = Connect | Connack | Publish | Answer | Subscribe | Unsubscribe | Suback | Ping | Ending


def _properties(properties: Properties, version: int) -> bytes:
    return write_properties(properties) if version == V5 else b""


def decode(header: int, body: bytes, version: int) -> Packet:
    """One packet. `version`: the level that was agreed on (of no meaning for CONNECT). Raises `PacketError`."""
    kind = header >> 4
    if kind == Kind.PUBLISH:
        return decode_publish(header, body, version)
    if kind not in _DECODERS:
        raise MalformedPacket(f"no packet begins with 0x{header:02x}")
    reader = Reader(body)
    decoded = _DECODERS[Kind(kind)](reader, Kind(kind), version)
    reader.finish()
    return decoded


def decode_publish(header: int, body: bytes, version: int) -> Publish:
    """PUBLISH (3.3), the packet that comes most: hence without a `Reader`. Raises `PacketError`."""
    qos = header >> 1 & 3
    if qos == 3 or (header & 0x08 and not qos):
        raise MalformedPacket("the flags of a PUBLISH contradict each other")
    at = 2 + int.from_bytes(body[:2])
    topic = body[2:at]
    number = 0
    if qos:
        number = int.from_bytes(body[at : at + 2])
        at += 2
    if at > len(body):
        raise MalformedPacket("a packet is cut")
    if qos and not number:
        raise ProtocolError("packet identifier 0")
    properties = NONE
    if version == V5:
        reader = Reader(body, at)
        properties = read_properties(reader, Kind.PUBLISH)
        _check_message(properties)
        at = reader.at
    if not topic and properties.topic_alias is None:
        raise ProtocolError("a topic name is empty")
    return Publish(
        topic=_cached_topic(topic) if len(topic) <= _CACHED_TOPIC_BYTES else topic_name(topic),
        payload=body[at:],
        qos=qos,
        packet_id=number,
        dup=bool(header & 0x08),
        retain=bool(header & 0x01),
        properties=properties,
    )


@lru_cache(maxsize=4096)
def _cached_topic(raw: bytes) -> str:
    return topic_name(raw) if raw else ""


def _check_message(properties: Properties) -> None:
    if properties is NONE:
        return
    if properties.topic_alias == 0:
        raise ProtocolError("topic alias 0", Reason.TOPIC_ALIAS_INVALID)
    _check_response_topic(properties)


def _check_response_topic(properties: Properties) -> None:
    if properties.response_topic is not None:
        topic_name(properties.response_topic.encode())


def _connect(reader: Reader, kind: Kind, version: int) -> Connect:  # noqa: ARG001
    name, level = reader.binary(), reader.byte()
    if (name, level) not in ((b"MQTT", V3), (b"MQTT", V5)):
        if name not in (b"MQTT", b"MQIsdp"):
            raise ProtocolError("this is not MQTT")
        raise ProtocolError(f"MQTT level {level} is not spoken here", Reason.UNSUPPORTED_PROTOCOL_VERSION)
    flags = reader.byte()
    _check_connect_flags(flags, level)
    keep_alive_s = reader.two()
    properties = read_properties(reader, Kind.CONNECT) if level == V5 else NONE
    if properties.authentication_data is not None and properties.authentication_method is None:
        raise ProtocolError("authentication data without a method")
    return Connect(
        version=level,
        clean_start=bool(flags & 0x02),
        keep_alive_s=keep_alive_s,
        properties=properties,
        client_id=reader.text(),
        will=_will(reader, flags, level) if flags & 0x04 else None,
        username=reader.text() if flags & 0x80 else None,
        password=reader.binary() if flags & 0x40 else None,
    )


def _check_connect_flags(flags: int, level: int) -> None:
    """5: 3.1.2.3 to 3.1.2.9; 3.1.1 knows no password without a user name."""
    if flags & 0x01:
        raise MalformedPacket("a reserved flag of CONNECT is set")
    if flags & 0x18 == 0x18 or (flags & 0x38 and not flags & 0x04):
        raise MalformedPacket("the will flags of CONNECT contradict each other")
    if level == V3 and flags & 0xC0 == 0x40:
        raise MalformedPacket("a password without a user name")


def _will(reader: Reader, flags: int, level: int) -> Will:
    properties = read_properties(reader, Kind.WILL) if level == V5 else NONE
    _check_response_topic(properties)
    topic = topic_name(reader.binary())
    return Will(topic, reader.binary(), flags >> 3 & 3, bool(flags & 0x20), properties)


def _connack(reader: Reader, kind: Kind, version: int) -> Connack:  # noqa: ARG001
    flags, code = reader.byte(), reader.byte()
    if flags > 1:
        raise MalformedPacket("a reserved flag of CONNACK is set")
    properties = read_properties(reader, Kind.CONNACK) if version == V5 else NONE
    return Connack(code=code, session_present=bool(flags), properties=properties)


def _packet_id(reader: Reader) -> int:
    number = reader.two()
    if not number:
        raise ProtocolError("packet identifier 0")
    return number


def _coded(reader: Reader, kind: Kind, version: int) -> tuple[int, Properties]:
    """A reason code and properties that may both be left out (5: 3.4.2.1, 3.14.2.1)."""
    code, properties = 0, NONE
    if version == V5 and not reader.empty:
        code = reader.byte()
        if not reader.empty:
            properties = read_properties(reader, kind)
    return code, properties


def _answer(reader: Reader, kind: Kind, version: int) -> Answer:
    number = _packet_id(reader)
    code, properties = _coded(reader, kind, version)
    return Answer(kind=kind, packet_id=number, code=code, properties=properties)


def _ending(reader: Reader, kind: Kind, version: int) -> Ending:
    if kind is Kind.AUTH and version != V5:
        raise MalformedPacket("3.1.1 has no AUTH")
    code, properties = _coded(reader, kind, version)
    return Ending(kind=kind, code=code, properties=properties)


def _ping(reader: Reader, kind: Kind, version: int) -> Ping:  # noqa: ARG001
    return Ping(kind)


def _subscribe(reader: Reader, kind: Kind, version: int) -> Subscribe:
    number = _packet_id(reader)
    properties = read_properties(reader, kind) if version == V5 else NONE
    filters: list[tuple[str, int]] = []
    while not reader.empty:
        name, options = topic_filter(reader.binary()), reader.byte()
        reserved = 0xC0 if version == V5 else 0xFC
        if options & reserved or options & 0x03 == 0x03 or options & 0x30 == 0x30:
            raise MalformedPacket("reserved subscription options are set")
        filters.append((name, options))
    _check_count(filters)
    return Subscribe(packet_id=number, filters=tuple(filters), properties=properties)


def _unsubscribe(reader: Reader, kind: Kind, version: int) -> Unsubscribe:
    number = _packet_id(reader)
    properties = read_properties(reader, kind) if version == V5 else NONE
    filters: list[str] = []
    while not reader.empty:
        filters.append(topic_filter(reader.binary()))
    _check_count(filters)
    return Unsubscribe(packet_id=number, filters=tuple(filters), properties=properties)


def _check_count(filters: list[tuple[str, int]] | list[str]) -> None:
    if not filters:
        raise ProtocolError("there is no topic filter")
    if len(filters) > MAX_FILTERS:
        raise ProtocolError(f"more than {MAX_FILTERS} topic filters", Reason.QUOTA_EXCEEDED)


def _suback(reader: Reader, kind: Kind, version: int) -> Suback:
    number = _packet_id(reader)
    properties = read_properties(reader, kind) if version == V5 else NONE
    return Suback(kind=kind, packet_id=number, codes=tuple(reader.rest()), properties=properties)


_DECODERS: dict[int, Callable[[Reader, Kind, int], Packet]] = {
    Kind.CONNECT: _connect,
    Kind.CONNACK: _connack,
    Kind.PUBACK: _answer,
    Kind.PUBREC: _answer,
    Kind.PUBREL: _answer,
    Kind.PUBCOMP: _answer,
    Kind.SUBSCRIBE: _subscribe,
    Kind.SUBACK: _suback,
    Kind.UNSUBSCRIBE: _unsubscribe,
    Kind.UNSUBACK: _suback,
    Kind.PINGREQ: _ping,
    Kind.PINGRESP: _ping,
    Kind.DISCONNECT: _ending,
    Kind.AUTH: _ending,
}
