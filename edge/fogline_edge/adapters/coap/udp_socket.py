"""A UDP socket on the loop."""

import asyncio
import socket
from collections.abc import Callable

from fogline.errors import Misconfigured
from fogline_edge.adapters.bind_error import cannot_listen
from fogline_edge.adapters.coap.counters import CoapCounters
from fogline_edge.adapters.coap.wire import Endpoint

_BUFFER_BYTES = 65_536  # more than the longest UDP datagram: one that fills the buffer was cut, and is dropped
_BATCH = 64  # datagrams read in one turn of the loop
_KERNEL_BUFFER_BYTES = 1_048_576


class UdpSocket:
    """A bound UDP socket on the running loop."""

    def __init__(self, raw: socket.socket, counters: CoapCounters) -> None:
        self._raw = raw
        self._counters = counters
        self._buffer = bytearray(_BUFFER_BYTES)
        self._loop = asyncio.get_running_loop()
        self._open = True
        self.address: Endpoint = raw.getsockname()

    def listen(self, received: Callable[[bytes, Endpoint], None]) -> None:
        """Call `received` with each datagram, until `close`."""
        self._loop.add_reader(self._raw, self._readable, received)

    def send(self, data: bytes, endpoint: Endpoint) -> None:
        """Send a datagram. One that the system refuses is counted and lost, as the network may lose it anyway."""
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

    def _readable(self, received: Callable[[bytes, Endpoint], None]) -> None:
        for _ in range(_BATCH):
            if not self._open:
                return
            try:
                size, endpoint = self._raw.recvfrom_into(self._buffer)
            except OSError:  # nothing more to read, or an ICMP error of an earlier datagram
                return
            if size == _BUFFER_BYTES:
                self._counters.cut += 1
            else:
                received(bytes(memoryview(self._buffer)[:size]), endpoint)


async def bind_udp(table: str, host: str, port: int) -> socket.socket:
    """Return a bound, non-blocking socket. Raises `Misconfigured`, which names the table of the settings."""
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
        raise Misconfigured(cannot_listen(error, table, host, port)) from None
    return raw
