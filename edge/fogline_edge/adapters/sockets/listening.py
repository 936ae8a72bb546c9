"""The server sockets of a listener."""

import asyncio
from collections.abc import Callable, Iterable
from typing import NamedTuple

from fogline.errors import Misconfigured
from fogline_edge.adapters.bind_error import cannot_listen

Addresses = dict[str, tuple[str, int]]
"""Host and port by the name of the place."""


class ListeningPlace(NamedTuple):
    """An address to listen on. `name`: in the line that says that the gateway is ready; `table`: of the settings."""

    name: str
    table: str
    host: str
    port: int
    connection: Callable[[], asyncio.BaseProtocol]


async def listen(places: Iterable[ListeningPlace]) -> dict[str, asyncio.Server]:
    """Listen at each place. Raises `Misconfigured`, and then listens nowhere."""
    servers: dict[str, asyncio.Server] = {}
    loop = asyncio.get_running_loop()
    for name, table, host, port, connection in places:
        try:
            servers[name] = await loop.create_server(connection, host, port, backlog=1024)
        except OSError as error:
            for each in servers.values():
                each.close()
            raise Misconfigured(cannot_listen(error, table, host, port)) from None
    return servers


def addresses_of(servers: dict[str, asyncio.Server]) -> Addresses:
    """Return host and port of each server."""
    return {name: each.sockets[0].getsockname()[:2] for name, each in servers.items()}
