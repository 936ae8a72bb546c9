"""A client's half of the MQTT codec. The gateway has the other half: it encodes what a server sends, and decodes the rest."""

from fogline_edge.adapters.mqtt.protocol import packets
from fogline_edge.adapters.mqtt.protocol.packets import (
    Ack,
    Connack,
    Connect,
    Packet,
    ServerPacket,
    Suback,
    Subscribe,
    Unsubscribe,
)
from fogline_edge.adapters.mqtt.protocol.primitives import V5, MalformedPacket, PacketType, Reader, binary, packet, text
from fogline_edge.adapters.mqtt.protocol.properties import NONE, Properties, read_properties, write_properties


def encode(sent: Packet | ServerPacket, version: int) -> bytes:
    """Encode any packet for a connection of this protocol level."""
    match sent:
        case Connect():
            return _connect(sent, version)
        case Subscribe():
            parts = b"".join(text(each) + bytes((options,)) for each, options in sent.filters)
            return packet(PacketType.SUBSCRIBE << 4 | 0x02, _head(sent, version) + parts)
        case Unsubscribe():
            return packet(PacketType.UNSUBSCRIBE << 4 | 0x02, _head(sent, version) + b"".join(map(text, sent.filters)))
    return sent.encode(version)


def decode(header: int, body: bytes, version: int) -> Packet | ServerPacket:
    """Decode any packet, as `packets.decode` does. Raises `PacketError`."""
    kind, reader = header >> 4, Reader(body)
    if kind == PacketType.CONNACK:
        flags, code = reader.byte(), reader.byte()
        if flags > 1:
            raise MalformedPacket("a reserved flag of CONNACK is set")
        properties = _read(reader, PacketType.CONNACK, version)
        reader.finish()
        return Connack(code=code, session_present=bool(flags), properties=properties)
    if kind in (PacketType.SUBACK, PacketType.UNSUBACK):
        packet_id, properties = reader.packet_id(), _read(reader, PacketType(kind), version)
        codes = tuple(reader.take(reader.end - reader.at))
        return Suback(kind=PacketType(kind), packet_id=packet_id, codes=codes, properties=properties)
    return packets.decode(header, body, version)


def puback(number: int, code: int = 0) -> Ack:
    """Make the PUBACK of a packet id."""
    return Ack(kind=PacketType.PUBACK, packet_id=number, code=code)


def _connect(connect: Connect, version: int) -> bytes:
    assert version == connect.version
    flags = connect.clean_start << 1 | (connect.password is not None) << 6 | (connect.username is not None) << 7
    parts = [binary(connect.client_id.encode())]
    if connect.will is not None:
        flags |= 0x04 | connect.will.qos << 3 | connect.will.retain << 5
        parts += [_write(connect.will.properties, version), text(connect.will.topic), binary(connect.will.payload)]
    if connect.username is not None:
        parts.append(text(connect.username))
    if connect.password is not None:
        parts.append(binary(connect.password))
    head = text("MQTT") + bytes((version, flags)) + connect.keep_alive_s.to_bytes(2)
    return packet(PacketType.CONNECT << 4, head + _write(connect.properties, version) + b"".join(parts))


def _head(sent: Subscribe | Unsubscribe, version: int) -> bytes:
    return sent.packet_id.to_bytes(2) + _write(sent.properties, version)


def _write(properties: Properties, version: int) -> bytes:
    return write_properties(properties) if version == V5 else b""


def _read(reader: Reader, kind: PacketType, version: int) -> Properties:
    return read_properties(reader, kind) if version == V5 else NONE
