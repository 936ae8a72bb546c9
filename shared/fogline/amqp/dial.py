"""Connects a client's socket to its server, direct or through a proxy."""

import asyncio

from fogline.amqp.driver import HANDSHAKE_S, AmqpConnection, Handler, connect
from fogline.amqp.engine import Engine
from fogline.errors import Unreachable
from fogline.transport.proxy.proxy_address import ProxyAddress, authority
from fogline.transport.proxy.proxy_errors import cannot_connect, proxy_ended, too_slow
from fogline.transport.proxy.tunnel import Tunnel, tunnel_through


async def dial(host: str, port: int, engine: Engine, handler: Handler, proxy: ProxyAddress | None = None) -> AmqpConnection:
    """Connect to a server, through `proxy` if there is one; `Handler.opened` follows. Safe to cancel: no socket stays open.

    Raises `Unreachable`. What `engine` protects is protected up to the server: of TLS a proxy sees ciphertext.
    """
    if proxy is None:
        return await connect(host, port, engine, handler)
    return await _dial_through(proxy, host, port, engine, handler)


async def _dial_through(proxy: ProxyAddress, host: str, port: int, engine: Engine, handler: Handler) -> AmqpConnection:
    tunnel, peer = tunnel_through(proxy, host, port), authority(host, port)
    exchange = _Exchange(tunnel, proxy_ended(proxy, peer))
    try:
        async with asyncio.timeout(HANDSHAKE_S):
            transport, _ = await asyncio.get_running_loop().create_connection(lambda: exchange, proxy.host, proxy.port)
    except (OSError, TimeoutError, ValueError) as error:
        raise cannot_connect(proxy, error) from None
    try:
        async with asyncio.timeout(HANDSHAKE_S):
            await exchange.over
    except TimeoutError:
        transport.abort()
        raise too_slow(proxy, peer, HANDSHAKE_S) from None
    except BaseException:
        transport.abort()
        raise
    connection = AmqpConnection(engine, handler)
    transport.set_protocol(connection.protocol)
    connection.protocol.connection_made(transport)
    if tunnel.rest:
        connection.protocol.data_received(tunnel.rest)
    transport.resume_reading()
    return connection


class _Exchange(asyncio.Protocol):
    """The socket while the proxy is asked. `over` completes once the tunnel stands; nothing is read from then on."""

    def __init__(self, tunnel: Tunnel, ended: Unreachable) -> None:
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._tunnel, self._ended = tunnel, ended
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(self._tunnel.data_to_send())

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        if self.over.done():
            return
        try:
            self._tunnel.receive(data)
        except Unreachable as error:
            self.over.set_exception(error)
            return
        self._transport.write(self._tunnel.data_to_send())
        if self._tunnel.done:
            self._transport.pause_reading()
            self.over.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's interface
        if not self.over.done():
            self.over.set_exception(self._ended)
