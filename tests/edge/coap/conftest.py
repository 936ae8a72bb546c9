"""`listening` gives a test a listener on a free port, `dial` a client made of bytes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any

import pytest

from coroutines import run_test
from edge.coap.client import LIMIT_S, Wire
from fogline_edge.adapters.coap.listener import CoapListener
from fogline_edge.settings import CoapSettings
from fogline_lab.commands import MemoryCommands


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    return run_test(pyfuncitem, strict=True)


@pytest.fixture
def dial():
    @contextmanager
    def dial(listener: CoapListener | tuple[str, int]):
        wire = Wire(listener if isinstance(listener, tuple) else listener.address)
        try:
            yield wire
        finally:
            wire.raw.close()

    return dial


@pytest.fixture
def listening():
    """Opens a listener for a port, with these settings of CoAP."""

    def listening(
        at: Any, commands: MemoryCommands | None = None, **settings: Any
    ) -> AbstractAsyncContextManager[CoapListener]:
        @asynccontextmanager
        async def listening() -> AsyncIterator[CoapListener]:
            listener = CoapListener(at, CoapSettings(**{"port": 0, **settings}), commands)
            await listener.start()
            try:
                yield listener
            finally:
                async with asyncio.timeout(LIMIT_S):
                    await listener.close()

        return listening()

    return listening
