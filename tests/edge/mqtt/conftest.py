"""Errors that the loop catches fail a test. `listening` gives it a listener on a free port, `dial` a client."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from coroutines import run_test
from fogline_edge.adapters.mqtt.protocol.packets import Connack, Connect, Packet, ServerPacket
from fogline_edge.adapters.mqtt.server.listener import MqttListener
from fogline_edge.adapters.port import CommandPort, Port
from fogline_edge.settings import MqttSettings
from fogline_lab.device.mqtt_wire import LIMIT_S, MqttWire


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    return run_test(pyfuncitem, strict=True)


@pytest.fixture
def dial():
    """Opens a client, and gives it with the CONNACK that it got; without a client id nothing is sent at first.

    `tls`: it speaks TLS.
    """

    @asynccontextmanager
    async def dial(
        listener: MqttListener,
        client_id: str | None = None,
        *,
        version: int = 5,
        tls: ssl.SSLContext | None = None,
        **connect: Any,
    ) -> AsyncIterator[tuple[MqttWire, Packet | ServerPacket | None]]:
        address = listener.addresses["mqtt" if tls is None else "mqtts"]
        async with asyncio.timeout(LIMIT_S):
            wire = MqttWire(*await asyncio.open_connection(*address, ssl=tls), version)
        answer: Packet | ServerPacket | None = None
        if client_id is not None:
            await wire.send(Connect(version=version, client_id=client_id, **connect))
            answer = await wire.receive()
            assert isinstance(answer, Connack), answer
        try:
            yield wire, answer
        finally:
            wire.cut()

    return dial


@pytest.fixture
def listening():
    """Opens a listener for a port, with these settings of MQTT, and for commands."""

    def listening(
        port: Port, commands: CommandPort | None = None, /, **settings: Any
    ) -> AbstractAsyncContextManager[MqttListener]:
        @asynccontextmanager
        async def listening() -> AsyncIterator[MqttListener]:
            listener = MqttListener(port, MqttSettings(**{"port": 0, **settings}), commands)
            await listener.start()
            try:
                yield listener
            finally:
                async with asyncio.timeout(LIMIT_S):
                    await listener.close()

        return listening()

    return listening
