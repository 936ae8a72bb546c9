"""`listening` gives a test a listener on a free port, `dial` a client made of bytes, which may speak TLS."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from coroutines import run_test
from edge.http.client import LIMIT_S, Talker
from fogline.process.rates import DeviceRates
from fogline_edge.adapters.http.listener import HttpListener
from fogline_edge.settings import HttpSettings


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    return run_test(pyfuncitem, strict=True)


@pytest.fixture
def dial():
    @asynccontextmanager
    async def dial(listener: HttpListener, tls: ssl.SSLContext | None = None) -> AsyncIterator[Talker]:
        address = listener.addresses["http" if tls is None else "https"]
        async with asyncio.timeout(LIMIT_S):
            talker = Talker(*await asyncio.open_connection(*address, ssl=tls))
        try:
            yield talker
        finally:
            await talker.close()

    return dial


@pytest.fixture
def listening():
    """Opens a listener for a port, with these settings of HTTP."""

    @asynccontextmanager
    async def listening(at, commands=None, rates=None, **settings) -> AsyncIterator[HttpListener]:
        rates = DeviceRates(1000, 10_000) if rates is None else rates
        listener = HttpListener(at, HttpSettings(**{"port": 0, **settings}), rates, commands)
        await listener.start()
        try:
            yield listener
        finally:
            async with asyncio.timeout(LIMIT_S):
                await listener.close()

    return listening
