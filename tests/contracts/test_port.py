"""What every `Port` does, whatever is behind it. A port's own module of tests subclasses `PortContract`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from contracts.port_contract import Opened, PortContract
from fogline_lab.port import MemoryPort


class TestMemoryPort(PortContract):
    @pytest.fixture
    def opening(self):
        @asynccontextmanager
        async def opening() -> AsyncIterator[Opened]:
            port = MemoryPort()
            yield Opened(port, lambda: [each.data for each in port.arrivals])

        return opening
