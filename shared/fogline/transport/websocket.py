"""WebSocket (RFC 6455) without IO, both sides, as a way for the bytes of another protocol: binary frames, no extensions.

A protocol's bytes may be cut into frames anywhere, so frames are passed on in pieces, and no message is ever held.
"""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Final

from wsproto.connection import Connection, ConnectionState, ConnectionType
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Ping,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)
from wsproto.frame_protocol import CloseReason
from wsproto.handshake import H11Handshake
from wsproto.utilities import ProtocolError, RemoteProtocolError

from fogline.transport.http_framing import MAX_HEAD_BYTES
from fogline.transport.websocket_request import WebSocketError, WebSocketRequest

_END: Final = b"\r\n\r\n"
_BEGIN: Final = {ConnectionType.SERVER: b"GET /", ConnectionType.CLIENT: b"HTTP/1."}


class WebSocket:
    """One side of one connection for a subprotocol: a client with `request`, a server without.

    After each call send `data_to_send`, also after an error. A server refuses a web page of another site (RFC 6455 section
    10.2), because a browser would show it the user's certificate.

    `ready`: bytes may be wrapped. `over`: the peer has closed; nothing follows. `why`: what it said then.
    """

    def __init__(self, subprotocol: str, request: WebSocketRequest | None = None) -> None:
        self.ready = self.over = False
        self.why = ""
        self._subprotocol = subprotocol
        self._side = ConnectionType.CLIENT if request is not None else ConnectionType.SERVER
        self._handshake = H11Handshake(self._side)
        self._connection: Connection | None = None
        self._head = b""
        self._to_send = bytearray()
        self._pong = b""
        if request is not None:
            asked = Request(host=request.authority, target=request.path, subprotocols=[subprotocol])
            self._to_send += self._handshake.send(asked)

    def data_to_send(self) -> bytes:
        """Return the bytes to send now: those of the handshake, of an answer to a ping, and of the close."""
        data = bytes(self._to_send) + self._pong
        self._to_send.clear()
        self._pong = b""
        return data

    def wrap(self, data: bytes) -> bytes:
        """Return a frame with bytes of the protocol above; nothing after a close."""
        if self._connection is None or self._connection.state is not ConnectionState.OPEN:
            return b""
        return self._connection.send(BytesMessage(data=data))

    def receive(self, data: bytes) -> bytes:
        """Take bytes of the peer. Returns those of the protocol above. Raises `WebSocketError`."""
        if self.over:
            return b""
        if self._connection is not None:
            self._connection.receive_data(data)
            return self._payload(self._connection)
        self._head += data
        head, end, rest = self._head.partition(_END)
        begin = _BEGIN[self._side]
        if not self._head.startswith(begin[: len(self._head)]):
            raise WebSocketError(f"the peer does not speak WebSocket: {self._head[:16]!r}")
        if len(head) > MAX_HEAD_BYTES:
            raise self._refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"its head has more than {MAX_HEAD_BYTES} bytes")
        if not end:
            return b""
        self._head = b""
        self._connection = self._begin(head + end)
        self.ready = True
        self._connection.receive_data(rest)
        return self._payload(self._connection)

    def close(self) -> None:
        """Say that nothing follows."""
        if self._connection is not None and self._connection.state is ConnectionState.OPEN:
            self._to_send += self._connection.send(CloseConnection(code=CloseReason.NORMAL_CLOSURE))

    def _begin(self, head: bytes) -> Connection:
        """Take the peer's head, and answer it. Raises `WebSocketError`."""
        try:
            self._handshake.receive_data(head)
            (event,) = self._handshake.events()
            if isinstance(event, Request):
                self._accept(event)
            elif isinstance(event, RejectConnection):
                raise _refused(event.status_code)
            elif not isinstance(event, AcceptConnection) or event.subprotocol != self._subprotocol:
                raise WebSocketError(f"the peer does not speak {self._subprotocol!a} over WebSocket")
        except RemoteProtocolError as error:
            raise self._refusal(HTTPStatus.BAD_REQUEST, str(error), error.event_hint) from None
        except (ProtocolError, ValueError) as error:  # ValueError: not ASCII, or a second response
            raise self._refusal(HTTPStatus.BAD_REQUEST, str(error)) from None
        assert self._handshake.connection is not None
        return self._handshake.connection

    def _accept(self, asked: Request) -> None:
        origin = next((value.decode("latin-1") for name, value in asked.extra_headers if name == b"origin"), None)
        if origin is not None and origin.partition("://")[2] != asked.host:
            raise self._refusal(HTTPStatus.FORBIDDEN, f"a page of {origin[:80]!a} may not connect")
        if self._subprotocol not in asked.subprotocols:
            raise self._refusal(HTTPStatus.BAD_REQUEST, f"the subprotocol is not {self._subprotocol!a}")
        self._to_send += self._handshake.send(AcceptConnection(subprotocol=self._subprotocol))

    def _refusal(self, status: HTTPStatus, why: str, hint: object = None) -> WebSocketError:
        """Answer a client, if this side is a server, and return the error."""
        if self._side is ConnectionType.SERVER and not self._to_send:
            more: Sequence[tuple[bytes, bytes]] = ()
            if isinstance(hint, RejectConnection):
                status, more = HTTPStatus(hint.status_code), hint.headers
            body = f"no WebSocket: {why}\n".encode("ascii", "backslashreplace")
            headers = [
                *more,
                (b"content-type", b"text/plain"),
                (b"content-length", b"%d" % len(body)),
                (b"connection", b"close"),
            ]
            try:
                self._to_send += self._handshake.send(RejectConnection(status_code=status, headers=headers, has_body=True))
                self._to_send += self._handshake.send(RejectData(data=body, body_finished=True))
            except ProtocolError:  # what came was no HTTP at all
                self._to_send.clear()
        return WebSocketError(f"no WebSocket: {why}")

    def _payload(self, connection: Connection) -> bytes:
        parts = []
        for event in connection.events():
            match event:
                case BytesMessage():
                    parts.append(bytes(event.data))
                case Ping():
                    self._pong = connection.send(event.response())  # the newest is enough (RFC 6455 section 5.5.3)
                case TextMessage():
                    self._to_send += connection.send(CloseConnection(code=CloseReason.UNSUPPORTED_DATA))
                    raise WebSocketError("the peer sends text over WebSocket, not binary frames")
                case CloseConnection() if connection.state is ConnectionState.OPEN:  # an error that wsproto has found
                    self._to_send += connection.send(CloseConnection(code=event.code))
                    raise WebSocketError(f"the peer's WebSocket frames cannot be read: {event.reason}")
                case CloseConnection():
                    if connection.state is ConnectionState.REMOTE_CLOSING:
                        self._to_send += connection.send(event.response())
                    self.over, self.why = True, f"the peer closed the WebSocket ({_close_reason(event)})"
                    break
        return b"".join(parts)


def _close_reason(event: CloseConnection) -> str:
    return f"{int(event.code)}, {event.reason[:80]!a}" if event.reason else f"{int(event.code)}"


def _refused(status: int) -> WebSocketError:
    if status in (HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT):
        return WebSocketError(f"status {status}: what answers for the peer cannot reach it")
    if 300 <= status < 400:
        return WebSocketError(f"status {status}: the peer sends to another address, which is not followed")
    return WebSocketError(f"status {status}: the peer has no WebSocket there. Check host, port and path")
