"""A command beside a backlog, over each way out of a site: in plain text, TLS, WebSocket, and through proxies.

One connection of our client to our server on a line of 10 Mbit/s with 25 ms of delay each way: 20 MB wait, and commands go one
after the other. The line is in front of a proxy: what a proxy buffers behind it is its own. Then 40 MB at full speed, for the
CPU time of both ends together. All ways in one run, in turn.
"""

import asyncio
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from processes import Bench

from fogline.amqp.dial import dial
from fogline.amqp.engine import Engine
from fogline.amqp.login import EXTERNAL, Login
from fogline.amqp.scheduler import Share
from fogline.amqp.security import ClientSecurity, ServerSecurity
from fogline.message import Message
from fogline.process.files.tls_files import client_context, server_context
from fogline.transport.proxy.proxy_address import ProxyAddress, ProxyKind
from fogline.transport.websocket_request import WebSocketRequest
from fogline_cloud.authority.certificates import Role
from fogline_lab.amqp import End, served, within
from fogline_lab.credentials.authority_folder import HERE, AuthorityFolder
from fogline_lab.site_proxy import SiteProxy
from fogline_lab.tcp_line import TcpLine

COMMANDS = 100
BATCH_BYTES = 25_000
BACKLOG_BYTES = 20_000_000
FULL_SPEED_BYTES = 40_000_000


class Way(NamedTuple):
    """A way to the bridge."""

    tls: bool = False
    websocket: bool = False
    proxy: ProxyKind | None = None


WAYS = {
    "plain": Way(),
    "tls": Way(tls=True),
    "websocket": Way(websocket=True),
    "wss": Way(tls=True, websocket=True),
    "socks5": Way(tls=True, proxy=ProxyKind.SOCKS5),
    "http": Way(tls=True, proxy=ProxyKind.HTTP),
    "wss_http": Way(tls=True, websocket=True, proxy=ProxyKind.HTTP),
}


def measure(bench: Bench) -> dict[str, float]:
    """All ways in turn; the order changes with each run."""
    found: dict[str, float] = {}
    (bench.folder / "way-out").mkdir(exist_ok=True)
    folder = bench.folder / "way-out" / str(bench.number)
    folder.mkdir()
    site = AuthorityFolder(folder, "acme")
    names = list(WAYS) if bench.number % 2 else list(reversed(WAYS))
    for name in names:
        bench.say(f"way out, {name}")
        times_ms = asyncio.run(_beside_a_backlog(WAYS[name], site, folder))
        cpu_s = asyncio.run(_at_full_speed(WAYS[name], site, folder))
        quantiles = statistics.quantiles(times_ms, n=100)
        found |= {
            f"way_out.{name}_p50": quantiles[49],
            f"way_out.{name}_p99": quantiles[98],
            f"way_out.{name}_cpu": cpu_s / FULL_SPEED_BYTES * 1e9,
        }
    return found


@asynccontextmanager
async def _connected(way: Way, site: AuthorityFolder, folder: Path, bits_per_s: float) -> AsyncIterator[tuple]:
    """Yield a connection's links for bulk and for commands."""
    client, server = End(), End(credit=100_000)
    there, here = ServerSecurity(websocket=way.websocket), ClientSecurity()
    if way.tls:
        context = server_context(site.files(Role.BRIDGE, "bridge-1"), "bench")
        there = ServerSecurity((EXTERNAL,), context, way.websocket)
        here = ClientSecurity(Login(EXTERNAL), client_context(site.files(Role.GATEWAY, "gw-1"), "bench"))
    async with AsyncExitStack() as stack:
        port = await stack.enter_async_context(served(server, security=there))
        target, proxy = port, None
        if way.proxy is not None:
            target = stack.enter_context(SiteProxy(folder, way.proxy)).port
        line = await stack.enter_async_context(TcpLine(target, bits_per_s=bits_per_s, delay_s=0.025 if bits_per_s else 0.0))
        if way.proxy is not None:
            proxy = ProxyAddress(kind=way.proxy, host=HERE, port=line.port)
        place = line.port if proxy is None else port
        request = WebSocketRequest(f"{HERE}:{place}", "/amqp") if way.websocket else None
        security = ClientSecurity(here.login, here.tls, request)
        connection = await dial(HERE, place, Engine("gw-1", hostname=HERE, security=security), client, proxy)
        await within(client.is_open.wait(), "not open")
        bulk = connection.open_sender(connection.open_session(), "bulk", "ingest/t/1", Share(), {})
        control = connection.open_sender(connection.open_session(), "control", "hello/t", Share(strict=0), {})
        await within(control.send(Message(subject="first")), "no credit came")
        yield bulk, control
        connection.abort()
        await within(client.is_closed.wait(), "not closed")


async def _beside_a_backlog(way: Way, site: AuthorityFolder, folder: Path) -> list[float]:
    """Return the round trip of each command in milliseconds."""
    async with _connected(way, site, folder, 10_000_000) as (bulk, control):
        backlog = [bulk.send(Message(body=bytes(BATCH_BYTES))) for _ in range(BACKLOG_BYTES // BATCH_BYTES)]
        await within(backlog[20], "the backlog does not move")
        found = []
        for _ in range(COMMANDS):
            began = time.monotonic()
            await within(control.send(Message(subject="command")), "the command has no outcome")
            found.append((time.monotonic() - began) * 1000)
        assert not backlog[-1].done(), "the backlog was over before the last command"
    await asyncio.gather(*backlog, return_exceptions=True)
    return found


async def _at_full_speed(way: Way, site: AuthorityFolder, folder: Path) -> float:
    """Return the CPU time of this process, that is of both ends and of the line between, in seconds."""
    async with _connected(way, site, folder, 0) as (bulk, _):
        began = time.process_time()
        await within(
            asyncio.gather(*(bulk.send(Message(body=bytes(BATCH_BYTES))) for _ in range(FULL_SPEED_BYTES // BATCH_BYTES))),
            "not settled",
        )
        return time.process_time() - began
