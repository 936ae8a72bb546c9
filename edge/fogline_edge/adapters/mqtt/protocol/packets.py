"""The control packets of MQTT 3.1.1 and 5.0 (section 3 of both) as values, and a server's half of their codec.

`decode` takes the first byte and the body from `framing`, which has checked the flags. `version` is the protocol level of the
connection. The packets that a server sends have `encode(version)`.
"""

from collections.abc import Callable
from functools import lru_cache

import msgspec

from fogline_edge.adapters.mqtt.protocol.primitives import (
    V3,
    V5,
    MalformedPacket,
    PacketType,
    ProtocolError,
    Reader,
    Reason,
    packet,
    text,
    topic_filter,
    topic_name,
)
from fogline_edge.adapters.mqtt.protocol.properties import NONE, Properties, read_properties, write_properties

MAX_FILTERS = 128
"""The most topic filters in one SUBSCRIBE or UNSUBSCRIBE."""
_CACHED_TOPIC_BYTES = 256


class Will(msgspec.Struct, frozen=True):
    """A Will Message: published if the connection ends without DISCONNECT (5: 3.1.2.5)."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    properties: Properties = NONE


class Connect(msgspec.Struct, frozen=True, kw_only=True):
    """CONNECT (3.1). `clean_start` is Clean Session in 3.1.1."""

    version: int
    client_id: str
    clean_start: bool = True
    keep_alive_s: int = 0
    will: Will | None = None
    username: str | None = None
    password: bytes | None = None
    properties: Properties = NONE


class Connack(msgspec.Struct, frozen=True, kw_only=True):
    """CONNACK (3.2). `code`: a return code of 3.1.1 or a reason code of 5."""

    code: int = 0
    session_present: bool = False
    properties: Properties = NONE

    def encode(self, version: int) -> bytes:
        """Encode the packet."""
        body = bytes((self.session_present, self.code)) + _properties(self.properties, version)
        return packet(PacketType.CONNACK << 4, body)


class Publish(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """PUBLISH (3.3). `packet_id` is 0 at QoS 0. `topic` is empty if a topic alias stands for it.

    The field names are part of the stored session records (`session_state`): a renamed field makes old records unreadable.
    """

    topic: str
    payload: bytes
    qos: int = 0
    packet_id: int = 0
    dup: bool = False
    retain: bool = False
    properties: Properties = NONE

    def encode(self, version: int) -> bytes:
        """Encode the packet."""
        packet_id = self.packet_id.to_bytes(2) if self.qos else b""
        header = PacketType.PUBLISH << 4 | self.dup << 3 | self.qos << 1 | self.retain
        return packet(header, text(self.topic) + packet_id + _properties(self.properties, version) + self.payload)


class Ack(msgspec.Struct, frozen=True, kw_only=True):
    """PUBACK, PUBREC, PUBREL or PUBCOMP (3.4 to 3.7), by `kind`. Only 5 has `code`."""

    kind: PacketType
    packet_id: int
    code: int = 0
    properties: Properties = NONE

    def encode(self, version: int) -> bytes:
        """Encode the packet in its shortest form."""
        body = self.packet_id.to_bytes(2) + _reason(self.code, self.properties, version)
        return packet(self.kind << 4 | (0x02 if self.kind is PacketType.PUBREL else 0x00), body)


class Subscribe(msgspec.Struct, frozen=True, kw_only=True):
    """SUBSCRIBE (3.8): pairs of topic filter and options byte."""

    packet_id: int
    filters: tuple[tuple[str, int], ...]
    properties: Properties = NONE


class Unsubscribe(msgspec.Struct, frozen=True, kw_only=True):
    """UNSUBSCRIBE (3.10)."""

    packet_id: int
    filters: tuple[str, ...]
    properties: Properties = NONE


class Suback(msgspec.Struct, frozen=True, kw_only=True):
    """SUBACK or UNSUBACK (3.9, 3.11), by `kind`: one code for each filter; an UNSUBACK of 3.1.1 has none."""

    kind: PacketType
    packet_id: int
    codes: tuple[int, ...] = ()
    properties: Properties = NONE

    def encode(self, version: int) -> bytes:
        """Encode the packet."""
        body = self.packet_id.to_bytes(2) + _properties(self.properties, version)
        if version == V5 or self.kind is PacketType.SUBACK:
            body += bytes(self.codes)
        return packet(self.kind << 4, body)


class Ping(msgspec.Struct, frozen=True):
    """PINGREQ or PINGRESP (3.12, 3.13), by `kind`."""

    kind: PacketType

    def encode(self, version: int) -> bytes:  # noqa: ARG002 (one shape for all packets)
        """Encode the packet."""
        return bytes((self.kind << 4, 0))


class Disconnect(msgspec.Struct, frozen=True, kw_only=True):
    """DISCONNECT or AUTH (3.14, 3.15), by `kind`. 3.1.1 has neither a code nor AUTH."""

    kind: PacketType = PacketType.DISCONNECT
    code: int = 0
    properties: Properties = NONE

    def encode(self, version: int) -> bytes:
        """Encode the packet in its shortest form."""
        return packet(self.kind << 4, _reason(self.code, self.properties, version))


Packet = Connect | Publish | Ack | Subscribe | Unsubscribe | Ping | Disconnect
ServerPacket = Connack | Publish | Ack | Suback | Ping | Disconnect


def _properties(properties: Properties, version: int) -> bytes:
    return write_properties(properties) if version == V5 else b""


def _reason(code: int, properties: Properties, version: int) -> bytes:
    """Encode a reason code and properties, which may both be left out (5: 3.4.2.1, 3.14.2.1)."""
    if version != V5 or (not code and properties == NONE):
        return b""
    return bytes((code,)) + (write_properties(properties) if properties != NONE else b"")


def decode(header: int, body: bytes, version: int) -> Packet:
    """Decode one packet. `version`: the connection's protocol level, ignored for CONNECT. Raises `PacketError`."""
    kind = header >> 4
    if kind == PacketType.PUBLISH:
        return decode_publish(header, body, version)
    if kind not in _DECODERS:
        raise ProtocolError("a client must not send this packet here")
    reader = Reader(body)
    decoded = _DECODERS[PacketType(kind)](reader, PacketType(kind), version)
    reader.finish()
    return decoded


def decode_publish(header: int, body: bytes, version: int) -> Publish:
    """Decode a PUBLISH (3.3), without a `Reader`, because nearly every packet is a PUBLISH. Raises `PacketError`."""
    qos = header >> 1 & 3
    if qos == 3 or (header & 0x08 and not qos):
        raise MalformedPacket("the flags of a PUBLISH contradict each other")
    at = 2 + int.from_bytes(body[:2])
    topic = body[2:at]
    packet_id = 0
    if qos:
        packet_id = int.from_bytes(body[at : at + 2])
        at += 2
    if at > len(body):
        raise MalformedPacket("a packet is truncated")
    if qos and not packet_id:
        raise ProtocolError("packet identifier 0")
    properties = NONE
    if version == V5:
        reader = Reader(body, at)
        properties = read_properties(reader, PacketType.PUBLISH)
        if properties.topic_alias == 0:
            raise ProtocolError("topic alias 0", Reason.TOPIC_ALIAS_INVALID)
        at = reader.at
    if not topic and properties.topic_alias is None:
        raise ProtocolError("a topic name is empty")
    return Publish(
        topic=_cached_topic(topic) if len(topic) <= _CACHED_TOPIC_BYTES else topic_name(topic),
        payload=body[at:],
        qos=qos,
        packet_id=packet_id,
        dup=bool(header & 0x08),
        retain=bool(header & 0x01),
        properties=properties,
    )


@lru_cache(maxsize=4096)
def _cached_topic(raw: bytes) -> str:
    return topic_name(raw) if raw else ""


def _connect(reader: Reader, kind: PacketType, version: int) -> Connect:  # noqa: ARG001
    name, level = reader.binary(), reader.byte()
    if (name, level) not in ((b"MQTT", V3), (b"MQTT", V5)):
        if name not in (b"MQTT", b"MQIsdp"):
            raise ProtocolError("this is not MQTT")
        raise ProtocolError(f"MQTT level {level} is not supported", Reason.UNSUPPORTED_PROTOCOL_VERSION)
    flags = reader.byte()
    _check_connect_flags(flags, level)
    keep_alive_s = reader.two()
    properties = _read(reader, PacketType.CONNECT, level)
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
    """Check the flags of CONNECT (5: 3.1.2.3 to 3.1.2.9); 3.1.1 allows no password without a user name."""
    if flags & 0x01:
        raise MalformedPacket("a reserved flag of CONNECT is set")
    if flags & 0x18 == 0x18 or (flags & 0x38 and not flags & 0x04):
        raise MalformedPacket("the will flags of CONNECT contradict each other")
    if level == V3 and flags & 0xC0 == 0x40:
        raise MalformedPacket("a password without a user name")


def _will(reader: Reader, flags: int, level: int) -> Will:
    properties = _read(reader, PacketType.WILL, level)
    topic = topic_name(reader.binary())
    return Will(topic, reader.binary(), flags >> 3 & 3, bool(flags & 0x20), properties)


def _read(reader: Reader, kind: PacketType, version: int) -> Properties:
    return read_properties(reader, kind) if version == V5 else NONE


def _read_reason(reader: Reader, kind: PacketType, version: int) -> tuple[int, Properties]:
    """Read a reason code and properties, which may both be left out (5: 3.4.2.1, 3.14.2.1)."""
    code, properties = 0, NONE
    if version == V5 and reader.at < reader.end:
        code = reader.byte()
        if reader.at < reader.end:
            properties = read_properties(reader, kind)
    return code, properties


def _ack(reader: Reader, kind: PacketType, version: int) -> Ack:
    packet_id = reader.packet_id()
    code, properties = _read_reason(reader, kind, version)
    return Ack(kind=kind, packet_id=packet_id, code=code, properties=properties)


def _disconnect(reader: Reader, kind: PacketType, version: int) -> Disconnect:
    if kind is PacketType.AUTH and version != V5:
        raise MalformedPacket("3.1.1 has no AUTH")
    code, properties = _read_reason(reader, kind, version)
    return Disconnect(kind=kind, code=code, properties=properties)


def _ping(reader: Reader, kind: PacketType, version: int) -> Ping:  # noqa: ARG001
    return Ping(kind)


def _subscribe(reader: Reader, kind: PacketType, version: int) -> Subscribe:
    packet_id, properties = reader.packet_id(), _read(reader, kind, version)
    filters: list[tuple[str, int]] = []
    while reader.at < reader.end:
        name, options = topic_filter(reader.binary()), reader.byte()
        reserved = 0xC0 if version == V5 else 0xFC
        if options & reserved or options & 0x03 == 0x03 or options & 0x30 == 0x30:
            raise MalformedPacket("reserved subscription options are set")
        filters.append((name, options))
    _check_count(filters)
    return Subscribe(packet_id=packet_id, filters=tuple(filters), properties=properties)


def _unsubscribe(reader: Reader, kind: PacketType, version: int) -> Unsubscribe:
    packet_id, properties = reader.packet_id(), _read(reader, kind, version)
    filters: list[str] = []
    while reader.at < reader.end:
        filters.append(topic_filter(reader.binary()))
    _check_count(filters)
    return Unsubscribe(packet_id=packet_id, filters=tuple(filters), properties=properties)


def _check_count(filters: list[tuple[str, int]] | list[str]) -> None:
    if not filters:
        raise ProtocolError("there is no topic filter")
    if len(filters) > MAX_FILTERS:
        raise ProtocolError(f"more than {MAX_FILTERS} topic filters", Reason.QUOTA_EXCEEDED)


_DECODERS: dict[int, Callable[[Reader, PacketType, int], Packet]] = {
    PacketType.CONNECT: _connect,
    PacketType.PUBACK: _ack,
    PacketType.PUBREC: _ack,
    PacketType.PUBREL: _ack,
    PacketType.PUBCOMP: _ack,
    PacketType.SUBSCRIBE: _subscribe,
    PacketType.UNSUBSCRIBE: _unsubscribe,
    PacketType.PINGREQ: _ping,
    PacketType.PINGRESP: _ping,
    PacketType.DISCONNECT: _disconnect,
    PacketType.AUTH: _disconnect,
}
