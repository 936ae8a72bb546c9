"""The socket: whole datagrams in, datagrams out."""

import asyncio
import socket
from collections.abc import Callable

from fogline.errors import Misconfigured
from fogline_edge.adapters.coap.counters import Counters
from fogline_edge.adapters.coap.wire import Endpoint
from fogline_edge.adapters.listening import cannot_listen

_BUFFER_BYTES = 65_536
"""More than any UDP datagram has: what fills it was cut, and is dropped."""
_BATCH = 64
"""How many datagrams are read before other work of the loop has its turn."""
_KERNEL_BUFFER_BYTES = 1_048_576


class UdpSocket:
    """One bound socket on the running loop. `received` is called with each datagram, until `close`."""

    def __init__(self, raw: socket.socket, received: Callable[[bytes, Endpoint], None], counters: Counters) -> None:
        self._raw = raw
        self._received = received
        self._counters = counters
        self._buffer = bytearray(_BUFFER_BYTES)
        self._loop = asyncio.get_running_loop()
        self._open = True
        self.address: Endpoint = raw.getsockname()
        self._loop.add_reader(raw, self._readable)

    def send(self, data: bytes, endpoint: Endpoint) -> None:
        """Send it, or count that it could not be sent: nobody awaits more of a datagram."""
        if not self._open:
            return
        try:
            self._raw.sendto(data, endpoint)
        except OSError:
            self._counters.unsent += 1

    def close(self) -> None:
        """Safe to call twice."""
        if self._open:
            self._open = False
            self._loop.remove_reader(self._raw)
            self._raw.close()

    def _readable(self) -> None:
        for _ in range(_BATCH):
            if not self._open:
                return
            try:
                size, endpoint = self._raw.recvfrom_into(self._buffer)
            except OSError:  # nothing more to read; or an error of an earlier datagram, that is of no use here
                return
            if size == _BUFFER_BYTES:
                self._counters.cut += 1
            else:
                self._received(bytes(memoryview(self._buffer)[:size]), endpoint)


async def bind(host: str, port: int) -> socket.socket:
    """A bound socket that does not block. Raises `Misconfigured` if the address is not to be had."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_DGRAM)
        family, kind, protocol, _, address = found[0]
        raw = socket.socket(family, kind, protocol)
        try:
            raw.setblocking(False)
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _KERNEL_BUFFER_BYTES)
            raw.bind(address)
        except OSError:
            raw.close()
            raise
    except OSError as error:
        raise Misconfigured(cannot_listen(error, "coap", host, port)) from None
    return raw
