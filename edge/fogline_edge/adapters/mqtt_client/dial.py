"""The socket of a connection: name, TCP and TLS without blocking the loop, and a buffer in front of what is read."""

import asyncio
import contextlib
import errno
import os
import socket
import ssl
from typing import Any

from fogline.errors import Unreachable

MAX_PACKET_BYTES = 16 * 1024 * 1024
"""What the broker is told to send at most: lists of devices are long, and no packet may fill the memory."""
_READ_BYTES = 65_536


class Stream:
    """A connected, non-blocking socket as paho reads it: a byte here and a byte there, out of one buffer.

    `drained`: the last `recv` found nothing, neither in the buffer nor in the kernel nor in TLS, so that nothing is left
    to be read before the loop reports the socket again.
    """

    def __init__(self, connected: socket.socket) -> None:
        self.drained = False
        self._socket = connected
        self._buffer = b""
        self._at = 0

    def recv(self, buffer_size: int) -> bytes:
        """Up to `buffer_size` bytes; none at the end of the stream. Raises `BlockingIOError`.

        paho asks for all that is left of a packet, so a packet over the limit is noticed before it is read. Then it raises
        `ConnectionAbortedError`.
        """
        if buffer_size > MAX_PACKET_BYTES:
            raise ConnectionAbortedError(errno.EMSGSIZE, f"the broker sends a packet of more than {MAX_PACKET_BYTES} bytes")
        if self._at >= len(self._buffer):
            self.drained = True
            try:
                self._buffer, self._at = self._socket.recv(_READ_BYTES), 0
            except ssl.SSLWantReadError:
                raise BlockingIOError from None
            self.drained = False
        found = self._buffer[self._at : self._at + buffer_size]
        self._at += len(found)
        return found

    def send(self, buffer: bytes | bytearray) -> int:
        """As `socket.send`."""
        return self._socket.send(buffer)

    def close(self) -> None:
        """Safe to call twice."""
        self._socket.close()

    def fileno(self) -> int:
        """-1 once it is closed."""
        return self._socket.fileno()

    def setblocking(self, flag: bool) -> None:  # noqa: FBT001 (paho's signature)
        """Part of what paho asks of a socket; this one never blocks."""


async def dial(host: str, port: int, tls: ssl.SSLContext | None, limit_s: float) -> Stream:
    """Connect to `host`, to each of its addresses in turn. Raises `Unreachable`. Cancelled safely."""
    try:
        async with asyncio.timeout(limit_s):
            connected = await _connect(host, port)
            try:
                connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if tls is not None:
                    connected = await _secure(connected, tls, host)
            except BaseException:  # whatever it is: nothing stays open
                connected.close()
                raise
    except TimeoutError:
        raise Unreachable(f"{host}:{port} does not answer within {limit_s:g} s") from None
    except ssl.SSLCertVerificationError as error:
        raise Unreachable(f"{host}:{port}: its certificate is not accepted: {error.verify_message}; see ca_file") from None
    except ssl.SSLError as error:
        raise Unreachable(f"{host}:{port}: no TLS with it: {error.reason or error}") from None
    except OSError as error:
        raise Unreachable(f"{host}:{port} is not reached: {_why(error)}") from None
    return Stream(connected)


def _why(error: OSError) -> str:
    return error.strerror or (os.strerror(error.errno) if error.errno else str(error))


async def _connect(host: str, port: int) -> socket.socket:
    loop = asyncio.get_running_loop()
    last: OSError | None = None
    for family, kind, protocol, _, address in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        candidate = socket.socket(family, kind, protocol)
        candidate.setblocking(False)
        try:
            await loop.sock_connect(candidate, address)
        except OSError as error:
            candidate.close()
            last = error
        except BaseException:  # cancelled, above all: nothing stays open
            candidate.close()
            raise
        else:
            return candidate
    raise last or OSError("it has no address")


async def _secure(connected: socket.socket, tls: ssl.SSLContext, host: str) -> ssl.SSLSocket:
    """The handshake, in the turns of the loop."""
    secured = tls.wrap_socket(connected, server_hostname=host, do_handshake_on_connect=False)
    loop = asyncio.get_running_loop()
    try:
        while True:
            try:
                secured.do_handshake()
            except ssl.SSLWantReadError:
                await _until(loop.add_reader, loop.remove_reader, secured)
            except ssl.SSLWantWriteError:
                await _until(loop.add_writer, loop.remove_writer, secured)
            else:
                return secured
    except BaseException:  # `wrap_socket` took the descriptor over: nothing stays open
        with contextlib.suppress(OSError):
            secured.close()
        raise


async def _until(add: Any, remove: Any, watched: socket.socket) -> None:
    ready = asyncio.Event()
    add(watched, ready.set)
    try:
        await ready.wait()
    finally:
        remove(watched)
