"""Requests by aiocoap."""

import asyncio
from contextlib import asynccontextmanager

import aiocoap

from edge.coap.client import LIMIT_S


@asynccontextmanager
async def aiocoap_client():
    context = await aiocoap.Context.create_client_context(transports=["udp6"])
    try:
        yield context
    finally:
        await context.shutdown()


async def send(context, listener, path, payload, code=aiocoap.PUT, **options):
    host, port = listener.address
    message = aiocoap.Message(code=code, uri=f"coap://{host}:{port}/{path}", payload=payload, **options)
    async with asyncio.timeout(LIMIT_S):
        return await context.request(message).response
