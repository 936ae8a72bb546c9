"""A time limit for the bytes of a command on a TCP connection: none of them leaves after the command's deadline.

Bytes that were written wait in the kernel until the device has acknowledged them. The kernel goes on sending them after the
socket is closed, and after the process has ended.
"""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable

from fogline.commands.command import Deadline
from fogline.events.codec import Beacon

_LINGER_0 = struct.pack("ii", 1, 0)
_MARGIN_S = 2.0
"""The kernel's timer for retransmissions may fire so much later, at most."""


def discard(transport: asyncio.BaseTransport) -> None:
    """Close a connection at once with a TCP reset, and discard the bytes that its peer has not got (socket(7), SO_LINGER)."""
    raw: socket.socket = transport.get_extra_info("socket")
    with contextlib.suppress(OSError):  # the socket is closed
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_0)
    assert isinstance(transport, asyncio.WriteTransport)
    transport.abort()


class SendLimit:
    """The time limit of one connection. `now`: the clock of deadlines."""

    def __init__(self, transport: asyncio.Transport, now: Callable[[], Beacon]) -> None:
        self._transport = transport
        self._socket: socket.socket = transport.get_extra_info("socket")
        self._now = now
        self._loop = asyncio.get_running_loop()
        self._first_s = self._last_s = 0.0  # the earliest and the latest deadline, on the loop's clock
        self._timer: asyncio.TimerHandle | None = None

    def until(self, deadline: Deadline) -> None:
        """Let the kernel discard the bytes that are written next if the peer has not got them at the deadline (tcp(7)).

        Until then, that ends a connection too whose older bytes wait as long.
        """
        deadline_s = self._loop.time() + deadline.left_ms(self._now()) / 1000
        self._first_s = min(self._first_s, deadline_s) if self._timer is not None else deadline_s
        self._last_s = max(self._last_s, deadline_s)
        self._start()

    def discard(self) -> None:
        """See the function `discard`."""
        discard(self._transport)

    def close(self) -> None:
        """Stop the timer: the socket is closed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start(self) -> None:
        self.close()
        left_s = self._first_s - self._loop.time()
        self._set(max(1, min(int(left_s * 1000), 2**31 - 1)))
        self._timer = self._loop.call_later(left_s + _MARGIN_S, self._passed)

    def _passed(self) -> None:
        self._timer, self._first_s = None, self._last_s
        if self._last_s > self._loop.time():
            self._start()
        else:
            self._set(0)

    def _set(self, limit_ms: int) -> None:
        with contextlib.suppress(OSError):  # the socket is closed
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, limit_ms)
