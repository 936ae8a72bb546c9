"""WebSocket (RFC 6455) without IO, both sides, as a way for the bytes of another protocol: binary frames, no extensions.

A protocol's bytes may be cut into frames anywhere, so frames are passed on in pieces, and no message is ever held.
"""

from http import HTTPStatus
from typing import Final

from wsproto.connection import Connection, ConnectionState, ConnectionType
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Ping, RejectConnection, Request, TextMessage
from wsproto.frame_protocol import CloseReason
from wsproto.handshake import H11Handshake
from wsproto.utilities import ProtocolError, RemoteProtocolError

from fogline.transport.http_framing import MAX_HEAD_BYTES
from fogline.transport.websocket_handshake import HandshakeRefused, OpeningHandshake, OriginRule
from fogline.transport.websocket_request import Subprotocol, WebSocketError, WebSocketRequest

_END: Final = b"\r\n\r\n"
_BEGIN: Final = b"HTTP/1."


class WebSocket:
    """One side of one connection for a subprotocol: a client with a request, a server with a rule for web pages.

    After each call send `data_to_send`, also after an error. A server refuses a web page of another site (RFC 6455 section
    10.2), because a browser would show it the user's certificate.

    `ready`: bytes may be wrapped. `over`: the peer has closed; nothing follows. `why`: what it said then.
    """

    def __init__(self, subprotocol: Subprotocol, side: WebSocketRequest | OriginRule) -> None:
        self.ready = self.over = False
        self.why = ""
        self._subprotocol = subprotocol
        self._opening = OpeningHandshake(subprotocol, side) if isinstance(side, OriginRule) else None
        self._handshake = H11Handshake(ConnectionType.CLIENT)
        self._connection: Connection | None = None
        self._head = b""
        self._to_send = bytearray()
        self._pong = b""
        if isinstance(side, WebSocketRequest):
            asked = Request(host=side.authority, target=side.path, subprotocols=[subprotocol.name])
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
        self._connection = self._answered(data) if self._opening is None else self._opened(self._opening, data)
        if self._connection is None:
            return b""
        self.ready = True
        return self._payload(self._connection)

    def close(self) -> None:
        """Say that nothing follows."""
        if self._connection is not None and self._connection.state is ConnectionState.OPEN:
            self._to_send += self._connection.send(CloseConnection(code=CloseReason.NORMAL_CLOSURE))

    def _opened(self, opening: OpeningHandshake, data: bytes) -> Connection | None:
        """Take a client's request, and answer it; None if more is needed. Raises `WebSocketError`."""
        try:
            answer = opening.receive(data)
        except HandshakeRefused as error:
            self._to_send += opening.refusal(error)
            raise WebSocketError(f"no WebSocket: {error}") from None
        if answer is None:
            return None
        self._to_send += answer
        return Connection(ConnectionType.SERVER, trailing_data=opening.rest)

    def _answered(self, data: bytes) -> Connection | None:
        """Take a server's answer; None if more is needed. Raises `WebSocketError`."""
        self._head += data
        head, end, rest = self._head.partition(_END)
        if not self._head.startswith(_BEGIN[: len(self._head)]):
            raise WebSocketError(f"the peer does not speak WebSocket: {self._head[:16]!r}")
        if len(head) > MAX_HEAD_BYTES:
            raise WebSocketError(f"no WebSocket: its head has more than {MAX_HEAD_BYTES} bytes")
        if not end:
            return None
        self._head = b""
        try:
            self._handshake.receive_data(head + end)
            (event,) = self._handshake.events()
        except (RemoteProtocolError, ProtocolError, ValueError) as error:  # ValueError: not ASCII, or a second response
            raise WebSocketError(f"no WebSocket: {error}") from None
        if isinstance(event, RejectConnection):
            raise _refused(event.status_code)
        if not isinstance(event, AcceptConnection) or event.subprotocol != self._subprotocol.name:
            raise WebSocketError(f"the peer does not speak {self._subprotocol.name!a} over WebSocket")
        assert self._handshake.connection is not None
        self._handshake.connection.receive_data(rest)
        return self._handshake.connection

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
