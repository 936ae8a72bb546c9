"""Errors that the loop catches fail a test. `listening` gives it a listener on a free port, `dial` a client."""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from coroutines import run_test
from fogline_edge.adapters.mqtt.protocol.packets import Connack, Connect, Packet, ServerPacket
from fogline_edge.adapters.mqtt.server import connection
from fogline_edge.adapters.mqtt.server.listener import MqttListener
from fogline_edge.adapters.port import CommandPort, Port
from fogline_edge.settings import MqttSettings
from fogline_lab.device.mqtt_wire import LIMIT_S, MqttWire
from fogline_lab.device.websocket_pipe import open_websocket


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    return run_test(pyfuncitem, strict=True)


@pytest.fixture
def dial():
    """Opens a client, and gives it with the CONNACK that it got; without a client id nothing is sent at first.

    `tls`: it speaks TLS. `web`: it speaks WebSocket.
    """

    @asynccontextmanager
    async def dial(
        listener: MqttListener,
        client_id: str | None = None,
        *,
        version: int = 5,
        tls: ssl.SSLContext | None = None,
        web: bool = False,
        **connect: Any,
    ) -> AsyncIterator[tuple[MqttWire, Packet | ServerPacket | None]]:
        address = listener.addresses[f"mqtt{'-ws' if web else ''}{'' if tls is None else 's'}"]
        async with asyncio.timeout(LIMIT_S):
            reader, writer = await asyncio.open_connection(*address, ssl=tls)
            pipe = await open_websocket(reader, writer) if web else None
        wire = MqttWire(reader, writer, version) if pipe is None else MqttWire(pipe, pipe, version)
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


@pytest.fixture
def refusals():
    """The listener's lines about connections that ended."""

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(record.getMessage())

    found: list[str] = []
    handler, log = Lines(), logging.getLogger(connection.__name__)
    (throttle,) = log.filters
    throttle._passed.clear()  # of the tests before
    level = log.level
    log.setLevel(logging.INFO)
    log.addHandler(handler)
    yield found
    log.removeHandler(handler)
    log.setLevel(level)
