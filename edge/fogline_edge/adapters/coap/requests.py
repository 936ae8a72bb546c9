"""Requests, read from the options of messages. Pure. Refuses what RFC 7252 requires a server to refuse."""

import re

import msgspec

from fogline_edge.adapters.coap.wire import CoapMessage, Code, Option, RequestRefused, uint

TTD = "hono-ttd"
STATUS = "hono-cmd-status"
EMPTY = "empty"
"""Query parameter of a request that intentionally has no payload (Eclipse Hono)."""


class Block(msgspec.Struct, frozen=True):
    """A Block1 or Block2 option (RFC 7959, section 2.2). `size` in bytes."""

    number: int
    more: bool
    size: int

    def encode(self) -> bytes:
        """Return the option's value."""
        exponent = self.size.bit_length() - 5
        return uint(self.number << 4 | self.more << 3 | exponent)


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A request. `query`: name and value of each Uri-Query, in order. `tag`: its Request-Tag (RFC 9175)."""

    method: int
    path: tuple[str, ...]
    query: tuple[tuple[str, str], ...]
    content_format: int | None
    accept: int | None
    block1: Block | None
    block2: Block | None
    size1: int | None
    observe: int | None
    tag: bytes | None
    payload: bytes

    def parameter(self, name: str) -> str | None:
        """Return the first value of a query parameter."""
        return next((value for key, value in self.query if key == name), None)


_LENGTHS: dict[int, tuple[int, int]] = {  # shortest and longest values of the supported options (RFC 7252, section 5.10)
    Option.URI_HOST: (1, 255),
    Option.OBSERVE: (0, 3),
    Option.URI_PORT: (0, 2),
    Option.URI_PATH: (0, 255),
    Option.CONTENT_FORMAT: (0, 2),
    Option.URI_QUERY: (0, 255),
    Option.ACCEPT: (0, 2),
    Option.BLOCK2: (0, 3),
    Option.BLOCK1: (0, 3),
    Option.SIZE1: (0, 4),
    Option.REQUEST_TAG: (0, 8),
}
_REPEATABLE = {Option.URI_PATH, Option.URI_QUERY, Option.REQUEST_TAG}
_SECONDS = re.compile(r"[0-9]{1,9}")


def read_request(message: CoapMessage) -> Request:
    """Read a request. Raises `RequestRefused`: 5.05 (proxy), 4.02 (unsupported critical option), 4.00 (invalid value)."""
    once: dict[int, bytes] = {}
    path: list[bytes] = []
    query: list[bytes] = []
    for number, value in message.options:
        if number in (Option.PROXY_URI, Option.PROXY_SCHEME):
            raise RequestRefused(Code.PROXYING_NOT_SUPPORTED, "no-proxy", "this server is not a proxy")
        shortest, longest = _LENGTHS.get(number, (1, 0))
        if not shortest <= len(value) <= longest or (number in once and number not in _REPEATABLE):
            if number & 1:
                raise RequestRefused(
                    Code.BAD_OPTION, "bad-option", f"critical option {number} is not supported, or its value is invalid"
                )
        elif number == Option.URI_PATH:
            path.append(value)
        elif number == Option.URI_QUERY:
            query.append(value)
        else:
            once[number] = value
    return Request(
        method=message.code,
        path=tuple(_text(each) for each in path),
        query=tuple(_parameter(each) for each in query),
        content_format=_number(once.get(Option.CONTENT_FORMAT)),
        accept=_number(once.get(Option.ACCEPT)),
        block1=_block(once.get(Option.BLOCK1)),
        block2=_block(once.get(Option.BLOCK2)),
        size1=_number(once.get(Option.SIZE1)),
        observe=_number(once.get(Option.OBSERVE)),
        tag=once.get(Option.REQUEST_TAG),
        payload=message.payload,
    )


def seconds(request: Request, most: int) -> int | None:
    """Return how long the client waits for a command (`hono-ttd`), at most `most`. Raises `RequestRefused` if not a number."""
    text = request.parameter(TTD)
    if text is None:
        return None
    if _SECONDS.fullmatch(text) is None:
        raise RequestRefused(Code.BAD_REQUEST, "bad-ttd", f"{TTD} is a number of seconds")
    return min(int(text), most) or None


def status(request: Request) -> int:
    """Return the result of a command (`hono-cmd-status`). Raises `RequestRefused` if it is missing or not a status."""
    text = request.parameter(STATUS) or ""
    if len(text) != 3 or not text.isascii() or not text.isdecimal() or not 200 <= int(text) <= 599:
        raise RequestRefused(Code.BAD_REQUEST, "bad-status", f"{STATUS} is a number from 200 to 599")
    return int(text)


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise RequestRefused(Code.BAD_REQUEST, "bad-text", "a path or query is not UTF-8") from None


def _parameter(value: bytes) -> tuple[str, str]:
    name, _, rest = _text(value).partition("=")
    return name, rest


def _number(value: bytes | None) -> int | None:
    return None if value is None else int.from_bytes(value)


def _block(value: bytes | None) -> Block | None:
    if value is None:
        return None
    number = int.from_bytes(value)
    if number & 7 == 7:
        raise RequestRefused(Code.BAD_REQUEST, "bad-block", "block size 7 is reserved")
    return Block(number >> 4, bool(number & 8), 16 << (number & 7))
