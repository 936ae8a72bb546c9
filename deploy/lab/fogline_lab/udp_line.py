"""UDP line on loopback: a proxy that loses, duplicates and reorders datagrams, as a seed says.

The fault of the n-th datagram of a direction depends on the seed and n alone, so that each run is the same. The server
sees each client at an address of its own, which stays the same over `retarget`, as over a restart of the server.
"""

import asyncio
import random
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

Address = tuple[str, int]
_HELD_S = 0.02
"""Delay of a reordered datagram, so that another one overtakes it."""
_MAX_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class DatagramFaults:
    """Shares of datagrams, 0 to 1, that are lost, sent twice, and overtaken by the next one."""

    lose: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0


class _Direction:
    """One way through the line."""

    def __init__(self, faults: DatagramFaults, seed: str) -> None:
        self.faults = faults
        self._random = random.Random(seed)
        self.seen = self.lost = 0

    def copies(self) -> tuple[int, bool]:
        """Return the number of copies of the next datagram to send, and True if they are delayed."""
        lose, duplicate, reorder = (self._random.random() for _ in range(3))
        self.seen += 1
        if lose < self.faults.lose:
            self.lost += 1
            return 0, False
        return 2 if duplicate < self.faults.duplicate else 1, reorder < self.faults.reorder


class UdpLine:
    """Listens on `address`, and forwards to `server`. `up` and `down` count datagrams that were `seen` and `lost`."""

    def __init__(self, server: Address, faults: DatagramFaults, seed: int) -> None:
        self.up = _Direction(faults, f"up {seed}")
        self.down = _Direction(faults, f"down {seed}")
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._clients: dict[Address, socket.socket] = {}
        self._delayed: set[asyncio.TimerHandle] = set()
        self._front = self._bound()
        self._loop.add_reader(self._front, self._from_client)
        self.address: Address = self._front.getsockname()

    def retarget(self, server: Address) -> None:
        """Forward to another server from now on."""
        self._server = server

    def rebind(self) -> None:
        """Let the server see each client at another address from now on, as after an address translator forgot it."""
        for each in self._clients.values():
            self._loop.remove_reader(each)
            each.close()
        self._clients.clear()

    def change(self, faults: DatagramFaults) -> None:
        """Apply other faults to both directions from now on."""
        self.up.faults = self.down.faults = faults

    def close(self) -> None:
        """Close all sockets; delayed datagrams are lost."""
        for timer in self._delayed:
            timer.cancel()
        for each in (self._front, *self._clients.values()):
            self._loop.remove_reader(each)
            each.close()

    def _bound(self) -> socket.socket:
        raw = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        raw.setblocking(False)
        raw.bind(("127.0.0.1", 0))
        return raw

    def _from_client(self) -> None:
        data, client = self._front.recvfrom(_MAX_BYTES)
        if client not in self._clients:
            back = self._clients[client] = self._bound()
            self._loop.add_reader(back, self._from_server, back, client)
        self._forward(self.up, self._clients[client], data, self._server)

    def _from_server(self, back: socket.socket, client: Address) -> None:
        data, _ = back.recvfrom(_MAX_BYTES)
        self._forward(self.down, self._front, data, client)

    def _forward(self, direction: _Direction, raw: socket.socket, data: bytes, to: Address) -> None:
        copies, delayed = direction.copies()
        for _ in range(copies):
            if delayed:
                timer = self._loop.call_later(_HELD_S, lambda: raw.fileno() >= 0 and raw.sendto(data, to))
                self._delayed.add(timer)
            else:
                raw.sendto(data, to)


@asynccontextmanager
async def udp_line(server: Address, faults: DatagramFaults, seed: int = 1) -> AsyncIterator[UdpLine]:
    """Put a line in front of `server` for the length of the block."""
    line = UdpLine(server, faults, seed)
    try:
        yield line
    finally:
        line.close()
