"""The HTTP server: uvicorn's protocol with limits, so that no client holds a connection without use or asks for too much."""

import asyncio
import logging
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from fogline.errors import Misconfigured
from fogline.http_framing import MAX_HEAD_BYTES, without_blank_lines
from fogline.process.log_throttle import LogThrottle
from fogline.process.tls_files import ReadAgain, server_context
from fogline_cloud.settings import ApiTlsSettings

HEAD_S = 10.0
"""Time that a client has to send the head of a request, and that TLS may take."""
IDLE_S = 5.0
"""Time that an idle connection is kept for the next request."""
STOP_S = 5.0
FILES_S = 5.0


class BoundedProtocol(H11Protocol):
    """One connection. `most`: connections at a time; one more is closed at once, and `on_refused` called."""

    def __init__(self, *arguments: Any, most: int, on_refused: Callable[[], None], **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._most = most
        self._on_refused = on_refused
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        if len(self.connections) >= self._most:
            self._on_refused()
            transport.abort()
        super().connection_made(transport)
        self.app_state = {"abort": transport.abort}
        self._wait_for_head()

    def handle_events(self) -> None:
        """Handle what has come, without the empty lines before a request."""
        self._skip_blank_lines()
        super().handle_events()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP, and end the connection."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True  # its application responds into nothing, instead of into a connection in error
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
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

    def on_response_complete(self) -> None:
        """Wait for the next request, or for the end of a body that was not read."""
        self._wait_for_head()
        super().on_response_complete()
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait_for_head(self) -> None:
        self._stop_waiting()
        self._deadline = self.loop.call_later(HEAD_S, self.transport.abort)

    def _stop_waiting(self) -> None:
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
        self._make = partial(BoundedProtocol, config, self._state, {}, most=most, on_refused=on_refused)
        self._context = None if tls is None else server_context(tls, "api.tls", passwords=True)
        self._files = None if tls is None else _certificate(self._context, tls)
        self._timer: asyncio.TimerHandle | None = None
        self._server: asyncio.Server | None = None

    @property
    def connections(self) -> int:
        """Number of open connections."""
        return len(self._state.connections)

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen, and return host and port. Raises `Misconfigured`."""
        timeout_s = HEAD_S if self._context is not None else None
        try:
            self._server = await asyncio.get_running_loop().create_server(
                self._make, host, port, ssl=self._context, ssl_handshake_timeout=timeout_s, backlog=1024
            )
        except OSError as error:
            what = f"cannot listen on {host}:{port}: {error.strerror or error}"
            raise Misconfigured(f"{what}. Set api.listen to a free port.") from None
        self._read_again()
        bound = self._server.sockets[0].getsockname()
        return str(bound[0]), int(bound[1])

    def _read_again(self) -> None:
        if self._files is not None:
            self._files.get()
            self._timer = asyncio.get_running_loop().call_later(FILES_S, self._read_again)

    def refuse_more(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()

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
