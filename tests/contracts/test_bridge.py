"""The accepting bridge of gateways' tests, and the real bridge on a real broker, do the same."""

from contextlib import asynccontextmanager

import pytest

from contracts.bridge_contract import BridgeContract, Listening
from fogline_lab.bridge.accepting_bridge import AcceptingBridge
from fogline_lab.line.line import serving


class TestAcceptingBridge(BridgeContract):
    @pytest.fixture
    def listening(self):
        @asynccontextmanager
        async def listening():
            bridge = AcceptingBridge()
            port = await bridge.serve()
            try:
                yield Listening(port, "acme")
            finally:
                bridge.close()

        return listening


class TestBridge(BridgeContract):
    @pytest.fixture
    def listening(self, line):
        @asynccontextmanager
        async def listening():
            async with serving(line):
                yield Listening(line.port, line.tenant)

        return listening
