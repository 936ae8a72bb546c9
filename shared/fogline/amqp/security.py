"""What is below AMQP: TLS, WebSocket and SASL, in one object without IO."""

import ssl
from typing import TYPE_CHECKING, Final

import msgspec

from fogline.amqp.login import ANONYMOUS, EXTERNAL, Login, LoginVerdict
from fogline.amqp.sasl import ClientSasl, SaslError, ServerSasl
from fogline.transport.tls import Tls, TlsError
from fogline.transport.websocket_request import Subprotocol, WebSocketError, WebSocketRequest

if TYPE_CHECKING:
    from fogline.transport.websocket import WebSocket

SUBPROTOCOL: Final = Subprotocol("amqp", "AMQP", b"AMQP")
"""OASIS AMQP WebSocket Binding (WSB) 1.0, section 2.1."""
BROKEN_OFF: Final = "the peer ended the connection during"
"""How the text of a `SecurityError` begins if the peer gave no reason: the next attempt may succeed."""


class ServerSecurity(msgspec.Struct, frozen=True):
    """What a server requires. `mechanisms`: those of SASL that it offers; EXTERNAL only to a peer with a certificate.

    `tls`: see `fogline.process.files.tls_files.server_context`; None for plain text. `websocket`: clients come over WebSocket.
    """

    mechanisms: tuple[str, ...] = (ANONYMOUS,)
    tls: ssl.SSLContext | None = None
    websocket: bool = False


class ClientSecurity(msgspec.Struct, frozen=True):
    """What a client shows. `tls`: see `fogline.process.files.tls_files.client_context`; None for plain text.

    `websocket`: what to ask a server of AMQP over WebSocket for, None for AMQP on the socket itself.
    """

    login: Login = Login()
    tls: ssl.SSLContext | None = None
    websocket: WebSocketRequest | None = None


PLAIN_TEXT: Final = ServerSecurity()


class SecurityError(Exception):
    """The peer is not let in, or does not let this side in. The text says why."""


def _websocket(security: ServerSecurity | ClientSecurity) -> "WebSocket | None":
    if not security.websocket:
        return None
    from fogline.transport.websocket import WebSocket  # noqa: PLC0415 - takes 3 MB, which a gateway without it does not need

    if isinstance(security, ClientSecurity):
        return None if security.websocket is None else WebSocket(SUBPROTOCOL, security.websocket)
    from fogline.transport.websocket_handshake import OriginRule  # noqa: PLC0415 - as the one before

    secure = security.tls is not None  # without TLS a bridge listens at loopback only
    return WebSocket(SUBPROTOCOL, OriginRule(secure=secure, loopback=not secure))


class SecurityLayers:
    """The layers of one connection. After each call take `data_to_send`. `hostname`: the server's, for a client.

    `ready`: AMQP may begin.
    """

    def __init__(self, security: ServerSecurity | ClientSecurity, hostname: str = "") -> None:
        self.ready = self._over = False  # `_over`: nothing of the handshakes is left to be sent
        self._offered: Login | None = None
        self.certificate: bytes | None = None
        self._security, self._hostname = security, hostname
        server = isinstance(security, ServerSecurity)
        self._tls = None if security.tls is None else Tls(security.tls, server=server, hostname=hostname)
        self._websocket = _websocket(security)
        below = self._tls is not None or self._websocket is not None
        self._sasl = None if below else self._begin_sasl()

    @property
    def login(self) -> Login:
        """The mechanism by which a server's peer has logged in, and its user name."""
        return (self._sasl.login if isinstance(self._sasl, ServerSasl) else None) or Login()

    def data_to_send(self) -> bytes:
        """Return the bytes of the handshakes to write now."""
        data = b""
        if self._sasl is not None and not self._over:
            data = self._sasl.data_to_send()
            self._over = self.ready
        if self._websocket is not None and (self._tls is None or self._tls.ready):
            data = self._websocket.data_to_send() + (self._websocket.wrap(data) if data else b"")
        if self._tls is None:
            return data
        return self._tls.wrap(data) if data else self._tls.data_to_send()

    def wrap(self, data: bytes) -> bytes:
        """Return the bytes to write for bytes of AMQP. Raises `SecurityError`."""
        if self._websocket is not None:
            data = self._websocket.wrap(data)
        if self._tls is None or not data:
            return data
        try:
            return self._tls.wrap(data)
        except TlsError as error:
            raise SecurityError(str(error)) from None

    def receive(self, data: bytes) -> bytes:
        """Take bytes of the socket. Returns those of AMQP. Raises `SecurityError`; then send `data_to_send` first."""
        try:
            if self._tls is not None:
                data = self._tls.receive(data)
                if self._sasl is None and self._tls.ready:
                    self.certificate = self._tls.peer_certificate()
            if self._websocket is not None and (data or self._tls is None):
                data = self._websocket.receive(data)
            if self._sasl is None and self._unready() == "":
                self._sasl = self._begin_sasl()
            if self.ready or self._sasl is None:
                return data
            data = self._sasl.receive(data)
        except (TlsError, WebSocketError, SaslError) as error:
            raise SecurityError(str(error)) from None
        if isinstance(self._sasl, ServerSasl) and not self._sasl.done:
            self._offered = self._sasl.login
        self.ready = self._sasl.done
        return data

    def receive_eof(self) -> None:
        """Take the end of the peer's bytes. Raises `SecurityError` if that ends a handshake."""
        if not self.ready:
            closed = f". {self._websocket.why}" if self._websocket is not None and self._websocket.over else ""
            raise SecurityError(f"{BROKEN_OFF} {self._unfinished()}{closed}")

    @property
    def over(self) -> bool:
        """True if the peer has closed the WebSocket: nothing follows."""
        return self._websocket is not None and self._websocket.over

    def closing(self) -> bytes:
        """Return the bytes to write before the socket is closed; empty if they were returned before."""
        if self._websocket is None or not self._websocket.ready:
            return b""
        self._websocket.close()
        return self.data_to_send()

    def _unready(self) -> str:
        """Return which layer below SASL has not finished its handshake, "" for none."""
        if self._tls is not None and not self._tls.ready:
            return "the TLS handshake"
        return "" if self._websocket is None or self._websocket.ready else "the WebSocket handshake"

    def _unfinished(self) -> str:
        if self._sasl is None:
            return self._unready()
        if isinstance(self._sasl, ClientSasl) and self._tls is None:
            return "the log-in. This side uses no TLS; the peer may require it"
        return f"the log-in; {self._sasl}"

    def take_offered(self) -> Login | None:
        """Return, once, the user name and the password that wait for `answer`; None if there are none."""
        offered, self._offered = self._offered, None
        return offered

    def answer(self, verdict: LoginVerdict) -> bytes:
        """Answer a login. Returns the bytes of AMQP that came meanwhile. Raises `SecurityError` if refused."""
        assert isinstance(self._sasl, ServerSasl)
        try:
            data = self._sasl.answer(verdict)
        except SaslError as error:
            raise SecurityError(str(error)) from None
        self.ready = True
        return data

    def close(self) -> None:
        """Say that nothing follows."""
        if self._tls is not None:
            self._tls.close()

    def _begin_sasl(self) -> ServerSasl | ClientSasl:
        security = self._security
        if isinstance(security, ClientSecurity):
            return ClientSasl(security.login, self._hostname)
        return ServerSasl([each for each in security.mechanisms if each != EXTERNAL or self.certificate is not None])
