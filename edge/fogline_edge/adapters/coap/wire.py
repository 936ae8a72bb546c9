"""CoAP messages and their bytes (RFC 7252, section 3): what every other module here is made of."""

from enum import IntEnum

import msgspec

from fogline.errors import Poison

MAX_OPTIONS = 64
"""The most options of one message; what we serve needs a dozen."""
MAX_PIECE_BYTES = 1024
"""The most payload in one datagram of ours (RFC 7252, section 4.6)."""


class Kind(IntEnum):
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
    CHANGED = 68
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


class Option(IntEnum):
    """Option numbers (section 12.2; RFC 7959, RFC 9175). Odd numbers are critical."""

    URI_HOST = 3
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
    REQUEST_TAG = 292


class FormatError(Poison):
    """A message format error. `reject`: the id of a confirmable message, that is rejected with a Reset (section 4.2)."""

    def __init__(self, what: str, reject: int | None = None) -> None:
        super().__init__("malformed", what)
        self.reject = reject


class Refusal(Poison):
    """A request that is answered with an error. `reason` is told to the client as well (section 5.5.2)."""

    def __init__(self, code: Code, reason: str, what: str, options: "Options" = ()) -> None:
        super().__init__(reason, what)
        self.code = code
        self.options = options


Options = tuple[tuple[int, bytes], ...]
Endpoint = tuple[str, int] | tuple[str, int, int, int]
"""A socket's address, as `recvfrom` gives it."""


class Message(msgspec.Struct, frozen=True):
    """One message; `options` in the order of their numbers."""

    kind: int
    code: int
    mid: int
    token: bytes = b""
    options: Options = ()
    payload: bytes = b""


class Reply(msgspec.Struct, frozen=True):
    """A response before it has a type, an id and a token. `options` in any order."""

    code: Code
    options: Options = ()
    payload: bytes = b""


def decode(data: bytes) -> Message:
    """Read one datagram, all of it. Raises `FormatError`."""
    if len(data) < 4 or data[0] >> 6 != 1:
        raise FormatError("this is not CoAP version 1")
    kind, token_end = data[0] >> 4 & 3, 4 + (data[0] & 15)
    code, mid = data[1], data[2] << 8 | data[3]
    reject = mid if kind == Kind.CON else None
    if token_end > 12 or token_end > len(data):
        raise FormatError("a token of more than 8 bytes, or cut", reject)
    if code == Code.EMPTY and len(data) > 4:
        raise FormatError("an empty message that is not empty", reject)
    try:
        options, at = _options(data, token_end)
    except FormatError as error:
        raise FormatError(str(error), reject) from None
    if at < len(data) and at + 1 == len(data):
        raise FormatError("a payload marker without a payload", reject)
    return Message(kind, code, mid, data[4:token_end], options, data[at + 1 :])


def _options(data: bytes, at: int) -> tuple[Options, int]:
    """The options, and where they end: at the payload marker, or at the end (section 3.1)."""
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


def encode(message: Message) -> bytes:
    """The inverse of `decode`; the options may come in any order."""
    parts = [bytes((0x40 | message.kind << 4 | len(message.token), message.code)), message.mid.to_bytes(2), message.token]
    former = 0
    for number, value in sorted(message.options, key=lambda option: option[0]):
        delta, more_delta = _nibble(number - former)
        length, more_length = _nibble(len(value))
        parts += (bytes((delta << 4 | length,)), more_delta, more_length, value)
        former = number
    if message.payload:
        parts += (b"\xff", message.payload)
    return b"".join(parts)


def _nibble(value: int) -> tuple[int, bytes]:
    if value < 13:
        return value, b""
    return (13, bytes((value - 13,))) if value < 269 else (14, (value - 269).to_bytes(2))


def uint(value: int) -> bytes:
    """An unsigned integer in as few bytes as it needs (section 3.2)."""
    return value.to_bytes((value.bit_length() + 7) // 8)


def shown_code(code: int) -> str:
    """`4.04`."""
    return f"{code >> 5}.{code & 31:02d}"
