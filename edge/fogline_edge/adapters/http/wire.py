"""Requests and responses, as values. Pure: h11 reads and writes their bytes."""

from collections.abc import Sequence
from urllib.parse import parse_qsl, unquote

import msgspec

from fogline.address import printable
from fogline.errors import Poison
from fogline.transport.http_framing import is_host

OCTETS = "application/octet-stream"
JSON = "application/json"
PROBLEM = "application/problem+json"
MAX_FIELDS = 64
"""Most parameters of a query."""

Headers = tuple[tuple[str, str], ...]


class HttpRefused(Poison):
    """A request that is answered with an error: a problem document (RFC 9457), with these headers beside it."""

    def __init__(self, status: int, reason: str, what: str, headers: Headers = ()) -> None:
        super().__init__(reason, what)
        self.status = status
        self.headers = headers


class HttpRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The head of a request. `path`: its segments, decoded. `headers`: by lower-case name, repeated ones joined by a comma."""

    method: str
    path: tuple[str, ...]
    query: tuple[tuple[str, str], ...]
    headers: dict[str, str]

    def parameter(self, name: str) -> str | None:
        """Return a parameter of Hono's, which may be in the query or in the headers."""
        return next((value for key, value in self.query if key == name), None) or self.headers.get(name)


class HttpResponse(msgspec.Struct, frozen=True):
    """A response. Length, date and connection are added when it is sent."""

    status: int
    headers: Headers = ()
    body: bytes = b""


ACCEPTED = HttpResponse(202)


def read_head(method: bytes, target: bytes, headers: Sequence[tuple[bytes, bytes]]) -> HttpRequest:
    """Read the head of a request as h11 gives it. Raises `HttpRefused` (400)."""
    found: dict[str, str] = {}
    for raw_name, raw_value in headers:
        name, value = raw_name.decode("ascii"), raw_value.decode("latin-1")
        found[name] = f"{found[name]}, {value}" if name in found else value
    if not is_host(found.get("host", "")):
        raise HttpRefused(400, "bad-host", "the field Host is no name or address, with a port if it is another one")
    path, _, query = _origin_form(target.decode("ascii", "replace")).partition("?")
    try:
        segments = tuple(unquote(each, errors="strict") for each in path.split("/"))
        parameters = tuple(parse_qsl(query, keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict"))
    except (UnicodeDecodeError, ValueError):
        raise HttpRefused(400, "bad-target", f"the path or query is not UTF-8, or has over {MAX_FIELDS} parameters") from None
    return HttpRequest(method=method.decode("ascii"), path=segments[1:], query=parameters, headers=found)


def problem(error: HttpRefused) -> HttpResponse:
    """Return the response for an error."""
    document = {"type": "about:blank", "title": error.reason, "status": error.status, "detail": printable(str(error))}
    return HttpResponse(error.status, (("content-type", PROBLEM), *error.headers), msgspec.json.encode(document))


def _origin_form(target: str) -> str:
    """Return a target in origin form (RFC 9112, section 3.2). Raises `HttpRefused` for one that names no path."""
    if target.startswith("/"):
        return target
    scheme, separator, rest = target.partition("://")
    if scheme.lower() in ("http", "https") and separator:
        return "/" + rest.partition("/")[2]
    raise HttpRefused(400, "bad-target", "the request names no path")
