"""Accepts the connections of the HTTP server. Those within the TLS handshake are bounded, in number and by address."""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Final

from fogline.process.log_throttle import LogThrottle
from fogline.transport.unnamed_sockets import UnnamedSockets

HANDSHAKE_S: Final = 10.0
ACCEPT_S: Final = 1.0
"""Pause after the system could not accept a connection: it has no file descriptor left."""
_log = logging.getLogger("fogline.api.door")
_log.addFilter(LogThrottle())


class HttpDoor:
    """Listens, and connects `make()` to each socket after its TLS handshake. `most`: handshakes at a time.

    Beyond that, the oldest one of the address that has most is cut off. asyncio's own server does not count them.
    """

    def __init__(self, make: Callable[[], asyncio.BaseProtocol], context: ssl.SSLContext | None, most: int) -> None:
        self._make = make
        self._context = context
        self._most = most
        self._sockets: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []
        self._handshakes: dict[socket.socket, asyncio.Task[None]] = {}
        self._waiting = UnnamedSockets[socket.socket]()

    async def open(self, host: str, port: int) -> tuple[str, int]:
        """Listen, and return host and port. Raises `OSError`."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(asyncio.Protocol, host, port, backlog=1024, start_serving=False)
        self._sockets = [each.dup() for each in server.sockets]
        server.close()
        for each in self._sockets:
            each.listen(1024)
            self._accepting.append(loop.create_task(self._accept(each), name="accept"))
        bound = self._sockets[0].getsockname()
        return str(bound[0]), int(bound[1])

    def close(self) -> None:
        """Stop listening, and end the handshakes. Safe to call twice."""
        for task in (*self._accepting, *self._handshakes.values()):
            task.cancel()
        for each in self._sockets:
            each.close()
        self._sockets = []

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, address = await loop.sock_accept(listening)
            except OSError as error:
                _log.error("cannot accept connections: %s", error.strerror)
                await asyncio.sleep(ACCEPT_S)
                continue
            if len(self._waiting) >= self._most and (first := self._waiting.first_to_go()) is not None:
                self._waiting.discard(first)
                self._handshakes[first].cancel()
            self._waiting.add(accepted, str(address[0]))
            self._handshakes[accepted] = loop.create_task(self._connect(accepted), name="handshake")
            await asyncio.sleep(0)  # it begins: only then can it be cancelled without losing its socket

    async def _connect(self, accepted: socket.socket) -> None:
        """Do the handshake. Whatever ends it, asyncio closes the socket."""
        timeout_s = HANDSHAKE_S if self._context is not None else None
        try:
            with contextlib.suppress(OSError):  # the peer speaks no TLS, is gone, or takes too long
                await asyncio.get_running_loop().connect_accepted_socket(
                    self._make, accepted, ssl=self._context, ssl_handshake_timeout=timeout_s
                )
        finally:
            self._waiting.discard(accepted)
            del self._handshakes[accepted]
