"""The opening handshake of a WebSocket (RFC 6455, section 4.2), at the server. Pure."""

import base64
import binascii
from collections.abc import Iterable
from email.utils import formatdate

import h11
from wsproto.utilities import generate_accept_token

from fogline.errors import Poison
from fogline.transport.http_framing import head_bytes, is_host
from fogline.transport.loopback import is_loopback
from fogline.transport.tls import TLS_HANDSHAKE
from fogline.transport.websocket_request import Subprotocol

MAX_HANDSHAKE_BYTES = 8192
"""Longest request of a handshake."""
_TOO_LONG = f"the WebSocket handshake has more than {MAX_HANDSHAKE_BYTES} bytes"
_NO_HTTP = "the client does not speak HTTP/1.1"
_VERSION = "13"

Headers = tuple[tuple[str, str], ...]


class HandshakeRefused(Poison):
    """A handshake that is answered with an error, with these headers beside it."""

    def __init__(self, status: int, why: str, headers: Headers = ()) -> None:
        super().__init__("websocket", why)
        self.status = status
        self.headers = headers


class OriginRule:
    """The pages whose scripts may connect. A browser names the page's origin; other clients need not.

    Allowed are `origins`, and the origin of the address that the client has connected to, because paho for Python names that.
    A page can give this machine's loopback address a name of its own (DNS rebinding). So on `loopback`, where perhaps nobody
    must log in, that address must be written as such. `secure`: the connection is TLS. `key`: of the setting that lists
    origins, if there is one.
    """

    def __init__(self, origins: Iterable[str] = (), *, secure: bool, loopback: bool, key: str = "") -> None:
        self.hint = f": see {key}" if key else ""
        self._origins = {each.lower() for each in origins}
        self._scheme = "https" if secure else "http"
        self._loopback = loopback

    def allows(self, origin: str | None, host: str) -> bool:
        """Return True if a page of `origin` may connect. `host`: the field Host of its request."""
        if origin is None or origin.lower() in self._origins:
            return True
        name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
        return origin.lower() == f"{self._scheme}://{host}".lower() and (not self._loopback or is_loopback(name))


class OpeningHandshake:
    """The handshake of one connection. `path`: of the request that is served; None for any."""

    def __init__(self, subprotocol: Subprotocol, rule: OriginRule, path: str | None = None) -> None:
        self._subprotocol = subprotocol
        self._h11 = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HANDSHAKE_BYTES)
        self._begun = False
        self._path = path
        self._rule = rule

    @property
    def held_bytes(self) -> int:
        """The bytes of a request that has not come whole; after the handshake, the client's first frames."""
        return len(self._h11.trailing_data[0])

    @property
    def rest(self) -> bytes:
        """The bytes behind the request."""
        return bytes(self._h11.trailing_data[0])

    def receive(self, data: bytes) -> bytes | None:
        """Take received bytes. Returns the response that opens the connection, None if more is needed.

        Raises `HandshakeRefused`; then send `refusal`, and nothing after it.
        """
        if not self._begun:
            self._begun = True
            if (why := _no_http(data, self._subprotocol)) is not None:
                raise HandshakeRefused(400, why)
        self._h11.receive_data(data)
        try:
            event = self._h11.next_event()
            if isinstance(event, h11.Request):
                self._h11.next_event()  # the end of the request
        except h11.RemoteProtocolError as error:
            status = error.error_status_hint  # the error's text has text of the client's, which would fill the log
            raise HandshakeRefused(status, _TOO_LONG if status == 431 else _NO_HTTP) from None
        if not isinstance(event, h11.Request):
            return None
        if head_bytes(event.method, event.target, event.headers) > MAX_HANDSHAKE_BYTES:
            raise HandshakeRefused(431, _TOO_LONG)
        accept = generate_accept_token(self._check(event).encode())
        headers = [
            ("upgrade", "websocket"),
            ("connection", "Upgrade"),
            ("sec-websocket-accept", accept.decode()),
            ("sec-websocket-protocol", self._subprotocol.name),
        ]
        return self._h11.send(h11.InformationalResponse(status_code=101, headers=headers, reason=b"Switching Protocols"))

    def refusal(self, error: HandshakeRefused) -> bytes:
        """Return the response for an error."""
        if self._h11.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return b""
        body = f"{error}\n".encode()
        headers = [("content-type", "text/plain; charset=utf-8"), ("content-length", str(len(body)))]
        headers += [("date", formatdate(usegmt=True)), ("connection", "close"), *error.headers]
        parts = [h11.Response(status_code=error.status, headers=headers), h11.Data(data=body), h11.EndOfMessage()]
        return b"".join(self._h11.send(each) or b"" for each in parts)

    def _check(self, request: h11.Request) -> str:
        """Return the key of a request that opens a connection. Raises `HandshakeRefused`."""
        fields: dict[str, str] = {}
        for raw_name, raw_value in request.headers:
            name, value = raw_name.decode("ascii"), raw_value.decode("latin-1")
            fields[name] = f"{fields[name]}, {value}" if name in fields else value
        if request.method != b"GET":
            raise HandshakeRefused(405, "a WebSocket is opened with GET", (("allow", "GET"),))
        if self._path is not None and request.target.decode("ascii", "replace").partition("?")[0] != self._path:
            raise HandshakeRefused(404, f"the path is not {self._path}")
        host = fields.get("host", "")
        if not host or not is_host(host):
            raise HandshakeRefused(400, "the field Host is no name or address")
        if request.http_version != b"1.1" or fields.get("content-length", "0") != "0" or "transfer-encoding" in fields:
            raise HandshakeRefused(400, "a WebSocket is opened by HTTP/1.1, without a body")
        if "websocket" not in _tokens(fields.get("upgrade")) or "upgrade" not in _tokens(fields.get("connection")):
            raise HandshakeRefused(426, "the request asks for no WebSocket", (("upgrade", "websocket"),))
        if fields.get("sec-websocket-version") != _VERSION:
            raise HandshakeRefused(426, f"the WebSocket is not of version {_VERSION}", (("sec-websocket-version", _VERSION),))
        if not self._rule.allows(fields.get("origin"), host):
            raise HandshakeRefused(403, f"the page's origin is not allowed{self._rule.hint}")
        name = self._subprotocol.name
        if name not in (each.strip() for each in fields.get("sec-websocket-protocol", "").split(",")):
            raise HandshakeRefused(400, f"the WebSocket handshake does not offer the subprotocol {name}")
        return _key(fields.get("sec-websocket-key", ""))


def _no_http(data: bytes, subprotocol: Subprotocol) -> str | None:
    """Return what a client speaks instead of HTTP, by its first bytes; None if they can begin a request."""
    if data.startswith(subprotocol.beginning):
        return f"the client speaks {subprotocol.title} without WebSocket, and this port does not"
    if data[0] == TLS_HANDSHAKE:
        return "the client speaks TLS, and this port does not"
    return None if ord("A") <= data[0] <= ord("Z") else _NO_HTTP


def _tokens(field: str | None) -> set[str]:
    return {each.strip().lower() for each in (field or "").split(",")}


def _key(text: str) -> str:
    """Return the key of a handshake, 16 bytes in base64. Raises `HandshakeRefused`."""
    try:
        if len(base64.b64decode(text, validate=True)) == 16:
            return text
    except (binascii.Error, ValueError):
        pass
    raise HandshakeRefused(400, "the WebSocket handshake has no key of 16 bytes")
