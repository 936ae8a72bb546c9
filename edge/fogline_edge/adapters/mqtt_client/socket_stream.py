"""The socket of a connection: name, TCP and TLS without blocking the loop, and a read buffer."""

import asyncio
import contextlib
import errno
import os
import socket
import ssl
from typing import Any

from fogline.errors import Unreachable

MAX_PACKET_BYTES = 16 * 1024 * 1024
"""The Maximum Packet Size: large enough for a list of devices, small enough for the memory."""
_READ_BYTES = 65_536


class BufferedSocket:
    """A connected, non-blocking socket with a buffer, because paho reads single bytes.

    `drained`: the last `recv` found no byte in the buffer, the kernel or TLS. The loop reports the next ones.
    """

    def __init__(self, connected: socket.socket) -> None:
        self.drained = False
        self._socket = connected
        self._buffer = b""
        self._at = 0

    def recv(self, buffer_size: int) -> bytes:
        """Return up to `buffer_size` bytes, or none at the end. Raises `BlockingIOError`, `ConnectionAbortedError`."""
        if buffer_size > MAX_PACKET_BYTES:  # paho asks for the whole rest of a packet
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
        """See `socket.send`."""
        return self._socket.send(buffer)

    def setsockopt(self, level: int, option: int, value: bytes) -> None:
        """See `socket.setsockopt`."""
        self._socket.setsockopt(level, option, value)

    def close(self) -> None:
        """Close the socket. Safe to call twice."""
        self._socket.close()

    def fileno(self) -> int:
        """Return the descriptor, or -1 after `close`."""
        return self._socket.fileno()

    def setblocking(self, flag: bool) -> None:  # noqa: FBT001 (paho's signature)
        """Do nothing: paho calls it, but this socket never blocks."""


async def dial(host: str, port: int, tls: ssl.SSLContext | None, limit_s: float) -> BufferedSocket:
    """Connect to `host`, trying each of its addresses in turn. Raises `Unreachable`. Safe to cancel."""
    try:
        async with asyncio.timeout(limit_s):
            connected = await _connect(host, port)
            try:
                connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if tls is not None:
                    connected = await _secure(connected, tls, host)
            except BaseException:  # cancelled too: no socket stays open
                connected.close()
                raise
    except TimeoutError:
        raise Unreachable(f"{host}:{port} does not answer within {limit_s:g} s") from None
    except ssl.SSLCertVerificationError as error:
        raise Unreachable(f"{host}:{port}: its certificate is not accepted: {error.verify_message}; see ca_file") from None
    except ssl.SSLError as error:
        raise Unreachable(f"{host}:{port}: TLS failed: {error.reason or error}") from None
    except OSError as error:
        reason = error.strerror or (os.strerror(error.errno) if error.errno else str(error))
        raise Unreachable(f"cannot connect to {host}:{port}: {reason}") from None
    return BufferedSocket(connected)


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
        except BaseException:  # cancelled: no socket stays open
            candidate.close()
            raise
        else:
            return candidate
    raise last or OSError("the name has no address")


async def _secure(connected: socket.socket, tls: ssl.SSLContext, host: str) -> ssl.SSLSocket:
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
    except BaseException:  # `wrap_socket` has taken the descriptor over: no socket stays open
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
