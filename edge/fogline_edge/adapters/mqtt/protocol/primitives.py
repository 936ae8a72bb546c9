"""Data types of MQTT (section 1.5), packet types, reason codes, topic syntax, and the errors of the decoder.

"5" cites MQTT 5.0 (OASIS, 2019), "3.1.1" cites MQTT 3.1.1 (OASIS, 2014). Where both agree, 5 is cited.
"""

from enum import IntEnum

from fogline.errors import Poison

V3 = 4
"""The protocol level of MQTT 3.1.1."""
V5 = 5
"""The protocol level of MQTT 5.0."""


class PacketType(IntEnum):
    """Control packet types (5: 2.1.2). `WILL` is not a packet: it selects the Will Properties (5: 3.1.3.2)."""

    WILL = 0
    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14
    AUTH = 15


class Reason(IntEnum):
    """The reason codes that this server uses (5: 2.4)."""

    SUCCESS = 0x00
    DISCONNECT_WITH_WILL = 0x04
    NO_SUBSCRIPTION_EXISTED = 0x11
    UNSPECIFIED = 0x80
    MALFORMED_PACKET = 0x81
    PROTOCOL_ERROR = 0x82
    IMPLEMENTATION_SPECIFIC = 0x83
    UNSUPPORTED_PROTOCOL_VERSION = 0x84
    CLIENT_IDENTIFIER_NOT_VALID = 0x85
    BAD_USER_NAME_OR_PASSWORD = 0x86
    NOT_AUTHORIZED = 0x87
    SERVER_BUSY = 0x89
    SERVER_SHUTTING_DOWN = 0x8B
    BAD_AUTHENTICATION_METHOD = 0x8C
    KEEP_ALIVE_TIMEOUT = 0x8D
    SESSION_TAKEN_OVER = 0x8E
    TOPIC_FILTER_INVALID = 0x8F
    TOPIC_NAME_INVALID = 0x90
    PACKET_IDENTIFIER_IN_USE = 0x91
    PACKET_IDENTIFIER_NOT_FOUND = 0x92
    RECEIVE_MAXIMUM_EXCEEDED = 0x93
    TOPIC_ALIAS_INVALID = 0x94
    PACKET_TOO_LARGE = 0x95
    QUOTA_EXCEEDED = 0x97
    SHARED_SUBSCRIPTIONS_NOT_SUPPORTED = 0x9E
    WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED = 0xA2


class PacketError(Poison):
    """An unacceptable packet: the server ends the connection with `code` (5: 4.13)."""

    def __init__(self, reason: str, what: str, code: int) -> None:
        super().__init__(reason, what)
        self.code = code


class MalformedPacket(PacketError):
    """The bytes are not a packet."""

    def __init__(self, what: str, code: int = Reason.MALFORMED_PACKET) -> None:
        super().__init__("malformed", what, code)


class ProtocolError(PacketError):
    """The packet is well-formed, but its content or its moment breaks the protocol."""

    def __init__(self, what: str, code: int = Reason.PROTOCOL_ERROR) -> None:
        super().__init__("protocol-error", what, code)


def utf8(raw: bytes) -> str:
    """Decode a UTF-8 string (5: 1.5.4): well-formed, no surrogates, no U+0000."""
    if b"\0" in raw:
        raise MalformedPacket("a string contains U+0000")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise MalformedPacket("a string is not UTF-8") from None


def topic_name(raw: bytes) -> str:
    """Decode a topic name (5: 4.7): a string of at least one character, without wildcards."""
    name = utf8(raw)
    if not name:
        raise MalformedPacket("a topic name is empty")
    if "#" in name or "+" in name:
        raise MalformedPacket("a topic name contains a wildcard", Reason.TOPIC_NAME_INVALID)
    return name


def topic_filter(raw: bytes) -> str:
    """Decode a topic filter (5: 4.7.1): `#` only as the last level, `+` only as a whole level."""
    found = utf8(raw)
    levels = found.split("/")
    if not found or "#" in found[:-1] or any(("+" in each or "#" in each) and len(each) > 1 for each in levels):
        raise MalformedPacket("a topic filter is not well-formed", Reason.TOPIC_FILTER_INVALID)
    return found


class Reader:
    """Reads a packet's body from front to back. Reading beyond its end raises `MalformedPacket`."""

    __slots__ = ("at", "body", "end")

    def __init__(self, body: bytes, at: int = 0) -> None:
        self.body = body
        self.at = at
        self.end = len(body)

    def take(self, count: int) -> bytes:
        """The next `count` bytes."""
        start, self.at = self.at, self.at + count
        if self.at > self.end:
            raise MalformedPacket("a packet is truncated")
        return self.body[start : self.at]

    def byte(self) -> int:
        """One byte."""
        return self.take(1)[0]

    def two(self) -> int:
        """A two byte integer (5: 1.5.2)."""
        return int.from_bytes(self.take(2))

    def packet_id(self) -> int:
        """A packet identifier, which is not 0 (5: 2.2.1)."""
        packet_id = self.two()
        if not packet_id:
            raise ProtocolError("packet identifier 0")
        return packet_id

    def varint(self) -> int:
        """A variable byte integer (5: 1.5.5) in the fewest bytes possible [MQTT-1.5.5-1]."""
        value = 0
        for shift in (0, 7, 14, 21):
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if not byte and shift:
                    raise MalformedPacket("a variable byte integer is longer than it needs to be")
                return value
        raise MalformedPacket("a variable byte integer has more than 4 bytes")

    def binary(self) -> bytes:
        """Binary data (5: 1.5.6)."""
        return self.take(self.two())

    def text(self) -> str:
        """A UTF-8 string (5: 1.5.4)."""
        return utf8(self.binary())

    def finish(self) -> None:
        """Raise `MalformedPacket` if bytes are unread."""
        if self.at != self.end:
            raise MalformedPacket("a packet is longer than its content")


def varint(value: int) -> bytes:
    """Encode a variable byte integer (5: 1.5.5)."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def binary(data: bytes) -> bytes:
    """Encode binary data (5: 1.5.6), at most 65,535 bytes."""
    return len(data).to_bytes(2) + data


def text(value: str) -> bytes:
    """Encode a UTF-8 string (5: 1.5.4)."""
    return binary(value.encode())


def packet(header: int, body: bytes) -> bytes:
    """Encode a whole packet: fixed header (5: 2.1) and body."""
    return bytes((header,)) + varint(len(body)) + body
