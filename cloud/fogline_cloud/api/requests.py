"""Reads requests: bodies within limits, and parameters of queries. Raises `Problem`."""

import asyncio
import re
from typing import Annotated, Any, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request

from fogline.address import addressed_device, shown
from fogline.documents import media_type
from fogline.documents.document_error import did_you_mean, explained
from fogline.errors import Poison
from fogline.events.event import parse_rfc3339
from fogline_cloud.api.problems import Problem, not_at_present, of_poison

MAX_COMMAND_BYTES = 512 * 1024
"""Body of a command: 262,144 bytes of arguments, in base64, and what is around them."""
MAX_EVENT_BYTES = 1_000_000
BODY_S = 20.0
"""Time that a client has to send the body of a request."""
MAX_WAIT_S = 60.0
MIN_TTL_S = 0.001
MAX_TYPE_CHARS = 256
"""The longest content type of arguments."""
MAX_KEY_CHARS = 256
_SECONDS = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)s?", re.ASCII)
_KEY = re.compile(rf"[\x21-\x7e]{{1,{MAX_KEY_CHARS}}}", re.ASCII)
T = TypeVar("T")


class CommandRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The body of `POST /v1/devices/{device}/commands`. `data` is any JSON; or `data_base64` with `content_type`."""

    name: str
    data: msgspec.Raw = msgspec.Raw()
    data_base64: bytes | None = None
    content_type: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_TYPE_CHARS)] | None = None
    ttl_s: Annotated[float, msgspec.Meta(ge=MIN_TTL_S, le=4_000_000)] | None = None
    durable: bool = True
    idempotent: bool = False
    newest_wins: bool = False
    one_way: bool = False


async def read_body(request: Request, most: int) -> bytes:
    """Return the body of a request.

    Raises `Problem` if it is encoded, too big, or comes too slowly, or if all bodies take too much memory.
    """
    check_encoding(request)
    given = request.headers.get("content-length", "")
    if given.isascii() and given.isdecimal() and int(given[:20]) > most:
        raise _too_big(most, int(given[:20]))
    body, hold = bytearray(), request.scope.get("state", {}).get("hold", lambda _: True)
    try:
        async with asyncio.timeout(BODY_S):
            async for chunk in request.stream():
                body += chunk
                if len(body) > most:
                    raise _too_big(most, len(body))
                if not hold(len(body)):
                    raise not_at_present("too many requests are under way")
    except TimeoutError:
        raise Problem(408, f"the body did not arrive in {BODY_S:.0f} s") from None
    except ClientDisconnect:
        raise Problem(400, "the connection ended within the body") from None
    finally:
        hold(0)
    return bytes(body)


def check_encoding(request: Request) -> None:
    """Raise `Problem` (415) for a content encoding: no body of this API may have one (RFC 9110 section 15.5.16)."""
    try:
        media_type.check_encoding(request.headers.get("content-encoding"))
    except Poison as error:
        raise Problem(415, str(error)) from None


def _too_big(most: int, size: int) -> Problem:
    return Problem(413, f"the body of this request may have {most} bytes; this one has {size} or more")


def decode_json(body: bytes, kind: type[T], what: str) -> T:
    """Return JSON as a type. Raises `Problem`, whose text names the member."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise Problem(400, f"{what}: {explained(error, kind)[:300]}") from None


def device_of(request: Request) -> str:
    """Return the device in the path of a request."""
    try:
        return addressed_device(str(request.path_params["device"]), "device")
    except Poison as error:
        raise of_poison(error) from None


def allow(request: Request, *names: str) -> None:
    """Raise `Problem` for a parameter of the query that is unknown, or that comes twice."""
    for name in request.query_params:
        if name not in names:
            raise Problem(400, f"parameter {shown(name)} is unknown here{did_you_mean(name, names)}")
    if len(request.query_params.multi_items()) != len(request.query_params):
        raise Problem(400, "a parameter of the query comes twice")


def wait_s(request: Request) -> float:
    """Return the seconds that the client waits for a verdict: parameter `wait`, such as `30s`; 0 without it."""
    text = request.query_params.get("wait")
    if text is None:
        return 0.0
    found = _SECONDS.fullmatch(text)
    if found is None or float(found[1]) > MAX_WAIT_S:
        raise Problem(400, f"wait={shown(text)}: expected up to {MAX_WAIT_S:.0f} seconds, for example wait=30s")
    return float(found[1])


def since_ms(request: Request) -> int:
    """Return the time in parameter `since` as milliseconds since 1970; 0 without it."""
    text = request.query_params.get("since")
    if text is None:
        return 0
    try:
        return parse_rfc3339(text) // 1_000_000
    except (ValueError, OverflowError):
        raise Problem(400, f"since={shown(text)}: expected a time such as 2026-01-31T12:00:00Z") from None


def limit(request: Request, most: int) -> int:
    """Return parameter `limit`, `most` without it."""
    text = request.query_params.get("limit", str(most))
    if not text.isascii() or not text.isdecimal() or not 1 <= int(text[:9]) <= most:
        raise Problem(400, f"limit={shown(text)}: expected 1 to {most}")
    return int(text)


def idempotency_key(request: Request) -> str | None:
    """Return the header `Idempotency-Key`, if there is one."""
    key = request.headers.get("idempotency-key")
    if key is not None and not _KEY.fullmatch(key):
        raise Problem(400, "Idempotency-Key: expected 1 to 256 printable ASCII characters without blanks")
    return key


def as_json(value: Any) -> bytes:
    """Return JSON."""
    return msgspec.json.encode(value)
