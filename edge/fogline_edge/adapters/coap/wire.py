"""CoAP messages and their encoding (RFC 7252, section 3), and Content-Format numbers."""

from enum import IntEnum

import msgspec

from fogline.errors import Poison

MAX_OPTIONS = 64
"""Most options of one message; a valid request needs a dozen."""
MAX_PIECE_BYTES = 1024
"""Longest payload of a datagram that the gateway sends (RFC 7252, section 4.6)."""

OCTETS = "application/octet-stream"

_MEDIA_TYPES = {  # IANA, CoRE Parameters: those that devices report in
    0: "text/plain; charset=utf-8",
    40: "application/link-format",
    41: "application/xml",
    42: OCTETS,
    47: "application/exi",
    50: "application/json",
    60: "application/cbor",
    61: "application/cwt",
    62: "application/multipart-core",
    63: "application/cbor-seq",
    110: "application/senml+json",
    111: "application/sensml+json",
    112: "application/senml+cbor",
    113: "application/sensml+cbor",
    114: "application/senml-exi",
    115: "application/sensml-exi",
    310: "application/senml+xml",
    311: "application/sensml+xml",
    11542: "application/vnd.oma.lwm2m+tlv",
    11543: "application/vnd.oma.lwm2m+json",
    11544: "application/vnd.oma.lwm2m+cbor",
}
_NUMBERS = {media_type.partition(";")[0]: number for number, media_type in _MEDIA_TYPES.items()}


class MessageType(IntEnum):
    """Message types (section 3)."""

    CON = 0
    NON = 1
    ACK = 2
    RST = 3


class Code(IntEnum):
    """Method and response codes, class times 32 plus detail (section 12.1; RFC 7959, RFC 8132, RFC 8516)."""

    EMPTY = 0
    GET = 1
    POST = 2
    PUT = 3
    DELETE = 4
    FETCH = 5
    CHANGED = 68
    CONTENT = 69
    CONTINUE = 95
    BAD_REQUEST = 128
    UNAUTHORIZED = 129
    BAD_OPTION = 130
    FORBIDDEN = 131
    NOT_FOUND = 132
    METHOD_NOT_ALLOWED = 133
    REQUEST_ENTITY_INCOMPLETE = 136
    REQUEST_ENTITY_TOO_LARGE = 141
    TOO_MANY_REQUESTS = 157
    SERVICE_UNAVAILABLE = 163
    PROXYING_NOT_SUPPORTED = 165

    @property
    def dotted(self) -> str:
        """The code in dotted form, such as `4.04`."""
        return f"{self >> 5}.{self & 31:02d}"


class Option(IntEnum):
    """Option numbers (section 12.2; RFC 7641, RFC 7959, RFC 9175). Odd numbers are critical."""

    URI_HOST = 3
    OBSERVE = 6
    URI_PORT = 7
    LOCATION_PATH = 8
    URI_PATH = 11
    CONTENT_FORMAT = 12
    MAX_AGE = 14
    URI_QUERY = 15
    ACCEPT = 17
    LOCATION_QUERY = 20
    BLOCK2 = 23
    BLOCK1 = 27
    PROXY_URI = 35
    PROXY_SCHEME = 39
    SIZE1 = 60
    ECHO = 252
    REQUEST_TAG = 292


class FormatError(Poison):
    """A message format error. `reject`: Message ID of a Confirmable message, to reject with a Reset (section 4.2)."""

    def __init__(self, what: str, reject: int | None = None) -> None:
        super().__init__("malformed", what)
        self.reject = reject


class RequestRefused(Poison):
    """A request that is answered with an error. The diagnostic payload is `reason` (section 5.5.2)."""

    def __init__(self, code: Code, reason: str, what: str, options: "Options" = ()) -> None:
        super().__init__(reason, what)
        self.code = code
        self.options = options


Options = tuple[tuple[int, bytes], ...]
Endpoint = tuple[str, int] | tuple[str, int, int, int]
"""Address and port of a peer, as `recvfrom` returns them."""


class CoapMessage(msgspec.Struct, frozen=True):
    """One message. `mid`: the Message ID. `options` in the order of their numbers."""

    kind: int
    code: int
    mid: int
    token: bytes = b""
    options: Options = ()
    payload: bytes = b""


class CoapResponse(msgspec.Struct, frozen=True):
    """A response without Type, Message ID and Token. `options` in any order."""

    code: Code
    options: Options = ()
    payload: bytes = b""


def decode(data: bytes) -> CoapMessage:
    """Decode one whole datagram. Raises `FormatError`."""
    if len(data) < 4 or data[0] >> 6 != 1:
        raise FormatError("not CoAP version 1")
    kind, token_end = data[0] >> 4 & 3, 4 + (data[0] & 15)
    code, mid = data[1], data[2] << 8 | data[3]
    reject = mid if kind == MessageType.CON else None
    if token_end > 12 or token_end > len(data):
        raise FormatError("a Token of more than 8 bytes, or cut", reject)
    if code == Code.EMPTY and len(data) > 4:
        raise FormatError("an Empty message with more than a header", reject)
    try:
        options, at = _options(data, token_end)
    except FormatError as error:
        raise FormatError(str(error), reject) from None
    if at + 1 == len(data):
        raise FormatError("a payload marker without a payload", reject)
    return CoapMessage(kind, code, mid, data[4:token_end], options, data[at + 1 :])


def _options(data: bytes, at: int) -> tuple[Options, int]:
    """Return the options and the index of their end: the payload marker, or the end of the datagram (section 3.1)."""
    found: list[tuple[int, bytes]] = []
    number, end = 0, len(data)
    while at < end and data[at] != 0xFF:
        delta, length = data[at] >> 4, data[at] & 15
        delta, at = _extended(data, at + 1, delta)
        length, at = _extended(data, at, length)
        number += delta
        if at + length > end or number > 0xFFFF:
            raise FormatError("an option is cut, or has too high a number")
        if len(found) == MAX_OPTIONS:
            raise FormatError(f"more than {MAX_OPTIONS} options")
        found.append((number, data[at : at + length]))
        at += length
    return tuple(found), at


def _extended(data: bytes, at: int, nibble: int) -> tuple[int, int]:
    if nibble < 13:
        return nibble, at
    size = nibble - 12
    if nibble == 15 or at + size > len(data):
        raise FormatError("an option's delta or length is reserved, or cut")
    return int.from_bytes(data[at : at + size]) + (13 if size == 1 else 269), at + size


def decode_inner(data: bytes) -> tuple[int, Options, bytes]:
    """Return code, options and payload of a message that was sealed (RFC 8613, section 5.3). Raises `FormatError`."""
    if not data:
        raise FormatError("a sealed message without a code")
    options, at = _options(data, 1)
    if at + 1 == len(data):
        raise FormatError("a payload marker without a payload")
    return data[0], options, data[at + 1 :]


def encode_inner(code: int, options: Options, payload: bytes) -> bytes:
    """Return code, options and payload as they are sealed."""
    return b"".join((bytes((code,)), *_encoded_options(options), *((b"\xff", payload) if payload else ())))


def encode(message: CoapMessage) -> bytes:
    """Encode a message. Its options may be in any order."""
    parts = [bytes((0x40 | message.kind << 4 | len(message.token), message.code)), message.mid.to_bytes(2), message.token]
    parts += _encoded_options(message.options)
    if message.payload:
        parts += (b"\xff", message.payload)
    return b"".join(parts)


def _encoded_options(options: Options) -> list[bytes]:
    parts, former = list[bytes](), 0
    for number, value in sorted(options, key=lambda option: option[0]):
        delta, more_delta = _nibble(number - former)
        length, more_length = _nibble(len(value))
        parts += (bytes((delta << 4 | length,)), more_delta, more_length, value)
        former = number
    return parts


def _nibble(value: int) -> tuple[int, bytes]:
    if value < 13:
        return value, b""
    return (13, bytes((value - 13,))) if value < 269 else (14, (value - 269).to_bytes(2))


def uint(value: int) -> bytes:
    """Encode an unsigned integer in the fewest bytes (section 3.2)."""
    return value.to_bytes((value.bit_length() + 7) // 8)


def media_type(number: int) -> str | None:
    """Return the media type of a Content-Format; `None` if it is unknown or has a content coding."""
    return _MEDIA_TYPES.get(number)


def number_of(content_type: str | None) -> int | None:
    """Return the Content-Format of a media type, without regard to its parameters; `None` if it has none."""
    return None if content_type is None else _NUMBERS.get(content_type.partition(";")[0].strip().lower())
