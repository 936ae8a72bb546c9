"""The HTTP server: uvicorn's protocol with limits, so that no client holds a connection without use or asks for too much."""

import asyncio
import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from fogline.errors import Misconfigured
from fogline.process.files.tls_files import ReadAgain, server_context
from fogline.process.log_throttle import LogThrottle
from fogline.transport.byte_budget import ByteBudget
from fogline.transport.http_framing import MAX_HEAD_BYTES, without_blank_lines
from fogline.transport.unnamed_sockets import UnnamedSockets
from fogline_cloud.api.http_door import HttpDoor
from fogline_cloud.api_settings import ApiTlsSettings

HEAD_S = 10.0
"""Time that a client has to send the head of a request, and that TLS may take."""
IDLE_S = 5.0
"""Time that an idle connection is kept for the next request."""
READ_BYTES = 16 * 1024
"""Bytes that are read from a socket at once. Beyond the head nothing is read until the request's handler asks for the body."""
UNFINISHED_BYTES = 64 * 1024 * 1024
"""The bytes of all requests that have not come whole, and of all responses that their clients do not read."""
STOP_S = 5.0
FILES_S = 5.0


_BUFFER = memoryview(bytearray(READ_BYTES))  # one for all: bytes are copied out of it before the next read


@dataclass(slots=True)
class ConnectionBounds:
    """The bounds that all connections share. `most`: connections at a time. `on_refused` is called for each that is closed."""

    most: int
    on_refused: Callable[[], None]
    budget: ByteBudget = field(default_factory=lambda: ByteBudget(UNFINISHED_BYTES))
    waiting: "UnnamedSockets[BoundedProtocol]" = field(default_factory=UnnamedSockets)
    """Those that wait for a request."""

    def make_room(self) -> bool:
        """Close the connection that waits longest for a request, of the address that has most. Returns False if none waits."""
        self.on_refused()
        first = self.waiting.first_to_go()
        if first is None:
            return False
        self.waiting.discard(first)
        first.transport.abort()
        return True


class BoundedProtocol(H11Protocol, asyncio.BufferedProtocol):
    """One connection. If there are too many, one that waits for a request makes room, else this one is closed at once."""

    def __init__(self, *arguments: Any, bounds: ConnectionBounds, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._bounds = bounds
        self._address = ""
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        if len(self.connections) >= self._bounds.most and not self._bounds.make_room():
            transport.abort()
        super().connection_made(transport)
        self._address = (transport.get_extra_info("peername") or [""])[0]
        self._account = self._bounds.budget.open(self._address, transport.abort)
        self._account.admit(self._address)  # only users send bodies and get long responses
        self.app_state = {"abort": transport.abort, "hold": self._account.hold}
        self._wait_for_head()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the interface
        """See `asyncio.BufferedProtocol.get_buffer`."""
        return _BUFFER

    def buffer_updated(self, nbytes: int) -> None:
        """See `asyncio.BufferedProtocol.buffer_updated`."""
        self.data_received(bytes(_BUFFER[:nbytes]))

    def pause_writing(self) -> None:
        """Count the response that the client does not read."""
        super().pause_writing()
        if not self._account.hold(self.transport.get_write_buffer_size()):
            self.transport.abort()

    def resume_writing(self) -> None:
        """Go on: the client has read."""
        self._account.hold(0)
        super().resume_writing()

    def handle_events(self) -> None:
        """Handle what has come, without the empty lines before a request."""
        self._skip_blank_lines()
        super().handle_events()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP (400), or a head that is too long (431, RFC 6585, section 5), and end the connection."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True  # its application responds into nothing, instead of into a connection in error
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._refuse(431 if len(self.conn.trailing_data[0]) > MAX_HEAD_BYTES else 400, msg)
        else:
            self.transport.close()

    def _refuse(self, status: int, why: str) -> None:
        fields = [("content-type", "text/plain; charset=utf-8"), ("connection", "close")]
        for event in (h11.Response(status_code=status, headers=fields), h11.Data(data=why.encode("ascii")), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event))
        self.transport.close()

    def _skip_blank_lines(self) -> None:
        waiting, closed = self.conn.trailing_data
        if self.conn.their_state is h11.IDLE and waiting.startswith(b"\r\n"):
            self.conn = h11.Connection(h11.SERVER, MAX_HEAD_BYTES)
            self.conn.receive_data(without_blank_lines(waiting))
            if closed:
                self.conn.receive_data(b"")

    def data_received(self, data: bytes) -> None:
        """Take bytes. Within a request the handler keeps the time."""
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_waiting()
            self.flow.pause_reading()  # until the handler asks for the body: before that it checks who sends it

    def on_response_complete(self) -> None:
        """Wait for the next request, or for the end of a body that was not read."""
        self._wait_for_head()
        super().on_response_complete()
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._stop_waiting()
        self._account.close()
        super().connection_lost(exc)

    def _wait_for_head(self) -> None:
        self._stop_waiting()
        self._bounds.waiting.add(self, self._address)
        self._deadline = self.loop.call_later(HEAD_S, self.transport.abort)

    def _stop_waiting(self) -> None:
        self._bounds.waiting.discard(self)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class HttpServer:
    """Serves an application. `start`, then `close`; both on the loop."""

    def __init__(self, app: ASGIApp, tls: ApiTlsSettings | None, most: int, on_refused: Callable[[], None]) -> None:
        config = uvicorn.Config(
            app,
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=int(IDLE_S),
            h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        )
        config.load()
        _throttle()
        self._state = ServerState()
        bounds = ConnectionBounds(most, on_refused)
        self._make = partial(BoundedProtocol, config, self._state, {}, bounds=bounds)
        self._context = None if tls is None else server_context(tls, "api.tls", passwords=True)
        self._files = None if tls is None else _certificate(self._context, tls)
        self._timer: asyncio.TimerHandle | None = None
        self._door = HttpDoor(self._make, self._context, most)

    @property
    def connections(self) -> int:
        """Number of open connections."""
        return len(self._state.connections)

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen, and return host and port. Raises `Misconfigured`."""
        try:
            bound = await self._door.open(host, port)
        except OSError as error:
            what = f"cannot listen on {host}:{port}: {error.strerror or error}"
            raise Misconfigured(f"{what}. Set api.listen to a free port.") from None
        self._read_again()
        return bound

    def _read_again(self) -> None:
        if self._files is not None:
            self._files.get()
            self._timer = asyncio.get_running_loop().call_later(FILES_S, self._read_again)

    def refuse_more(self) -> None:
        """Stop listening."""
        self._door.close()

    async def close(self) -> None:
        """Let requests in progress end, for a few seconds, and close all connections."""
        self.refuse_more()
        if self._timer is not None:
            self._timer.cancel()
        for each in list(self._state.connections):
            each.shutdown()
        if tasks := set(self._state.tasks):
            _, late = await asyncio.wait(tasks, timeout=STOP_S)
            for task in late:
                task.cancel()
        for each in list(self._state.connections):
            each.transport.abort()


def _throttle() -> None:
    """Let uvicorn log one line for what many strangers send."""
    log = logging.getLogger("uvicorn.error")
    if not any(isinstance(each, LogThrottle) for each in log.filters):
        log.addFilter(LogThrottle())


def _certificate(context: ssl.SSLContext | None, tls: ApiTlsSettings) -> ReadAgain[None]:
    """Load the certificate into the context again when its file changes: new connections get it."""

    def load() -> None:
        assert context is not None
        try:
            context.load_cert_chain(tls.certificate, tls.key)
        except (OSError, ssl.SSLError) as error:
            raise Misconfigured(f"api.tls: cannot use {tls.certificate} with key {tls.key}: {error}") from None

    return ReadAgain(load, [tls.certificate, tls.key])
