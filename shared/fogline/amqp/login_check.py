"""Tries whether a bridge lets this side in: TLS, log-in and the open frame, without a link."""

import asyncio

from fogline.amqp.client import AmqpClient
from fogline.amqp.refusal import refusal_in
from fogline.errors import Unreachable
from fogline.transport.proxy.proxy_address import ProxyAddress

LIMIT_S = 15.0
"""Time that the peer has to open the connection, and to answer its close."""


async def try_login(host: str, port: int, client: AmqpClient, proxy: ProxyAddress | None = None) -> str:
    """Connect, open and close. Returns why the peer does not let this side in, "" if it does.

    Raises `Unreachable`. Safe to cancel.
    """
    try:
        async with client, asyncio.timeout(LIMIT_S):
            await client.open(host, port, proxy)
            client.close()
            await asyncio.wait([client.over])
    except TimeoutError:
        raise Unreachable(f"{host}:{port} does not answer in {LIMIT_S:.0f} s") from None
    except Unreachable:
        if not client.why:
            raise  # no connection
        return refusal_in(client.why) or client.why
    return refusal_in(client.why)
