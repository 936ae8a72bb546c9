"""A bad network for tests: a UDP proxy that loses, repeats and reorders datagrams, as a seed says.

What happens to the n-th datagram of a direction depends on nothing but the seed and n: the same datagrams in the same
order have the same fate in every run. Each client is seen by the server at an address of its own, which stays the same
over `retarget`, as it would over a restart of the server.
"""

import asyncio
import random
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

Address = tuple[str, int]
_HELD_S = 0.02
"""How long a datagram that was put back waits for another to overtake it."""
_MAX_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class Weather:
    """The share of datagrams, 0 to 1, that are lost, sent twice, and overtaken by the next one."""

    lose: float = 0.0
    repeat: float = 0.0
    reorder: float = 0.0


class _Direction:
    """One way through the proxy."""

    def __init__(self, weather: Weather, seed: str) -> None:
        self.weather = weather
        self._random = random.Random(seed)
        self.seen = self.lost = 0

    def copies(self) -> tuple[int, bool]:
        """How often the next datagram is sent on, and whether it is put back before that."""
        lose, repeat, reorder = (self._random.random() for _ in range(3))
        self.seen += 1
        if lose < self.weather.lose:
            self.lost += 1
            return 0, False
        return 2 if repeat < self.weather.repeat else 1, reorder < self.weather.reorder


class UdpProxy:
    """Listens on `address`, and forwards to `server`. `up` and `down` count what was `seen` and `lost`."""

    def __init__(self, server: Address, weather: Weather, seed: int) -> None:
        self.up = _Direction(weather, f"up {seed}")
        self.down = _Direction(weather, f"down {seed}")
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._clients: dict[Address, socket.socket] = {}
        self._held: set[asyncio.TimerHandle] = set()
        self._front = self._bound()
        self._loop.add_reader(self._front, self._from_client)
        self.address: Address = self._front.getsockname()

    def retarget(self, server: Address) -> None:
        """Forward to another server from now on."""
        self._server = server

    def change(self, weather: Weather) -> None:
        """Both ways from now on."""
        self.up.weather = self.down.weather = weather

    def close(self) -> None:
        """Lose whatever is still held."""
        for timer in self._held:
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
        copies, put_back = direction.copies()
        for _ in range(copies):
            if put_back:
                timer = self._loop.call_later(_HELD_S, lambda: raw.fileno() >= 0 and raw.sendto(data, to))
                self._held.add(timer)
            else:
                raw.sendto(data, to)


@asynccontextmanager
async def udp_proxy(server: Address, weather: Weather, seed: int = 1) -> AsyncIterator[UdpProxy]:
    """A proxy in front of `server`, for as long as the block runs."""
    proxy = UdpProxy(server, weather, seed)
    try:
        yield proxy
    finally:
        proxy.close()
