"""`listening` gives a test a listener on a free port, `dial` a client made of bytes."""

import asyncio
import inspect
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any

import pytest

from edge.coap.client import LIMIT_S, Wire
from fogline_edge.adapters.coap.listener import CoapListener
from fogline_edge.settings import CoapSettings
from fogline_lab.commands import MemoryCommands


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    asyncio.run(_run(pyfuncitem.obj(**arguments)))
    return True


async def _run(test: Any) -> None:
    """The test itself; whatever the loop had to catch fails it."""
    unhandled: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
    await test
    assert unhandled == []


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
