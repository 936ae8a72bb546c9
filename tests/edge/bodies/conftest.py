"""`http_gateway`, `mqtt_gateway`, `coap_gateway`: listeners with large bodies, on a real outbox."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from coroutines import run_test
from edge.bodies.gateway import BodyGateway


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    return run_test(pyfuncitem, strict=True)


@pytest.fixture
def http_gateway(folder):
    @contextlib.asynccontextmanager
    async def serve(*, private: str | None = None, outbox_bytes: int = 1_000_000_000, **bodies) -> AsyncIterator[BodyGateway]:
        async with BodyGateway.serve(Path(folder), outbox_bytes, bodies, private) as gateway:
            yield gateway

    return serve


@pytest.fixture
def mqtt_gateway(http_gateway):
    return http_gateway


@pytest.fixture
def coap_gateway(http_gateway):
    return http_gateway
