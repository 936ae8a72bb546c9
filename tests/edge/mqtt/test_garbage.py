"""A connection that has ended leaves no reference cycle: the garbage collector seldom looks at old objects."""

import gc
import weakref

import pytest

from fogline_edge.adapters.mqtt.protocol.packets import Disconnect
from fogline_edge.adapters.mqtt.protocol.primitives import Reason
from fogline_edge.adapters.mqtt.protocol.properties import Properties
from fogline_edge.adapters.sockets.tls_layer import TlsTransport
from fogline_lab.commands import MemoryCommands
from fogline_lab.credentials.mqtt_tls_files import MqttTlsFiles
from fogline_lab.port import MemoryPort

CONNECTIONS = 5


@pytest.fixture
def no_collector():
    """The garbage collector does not run."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def objects_of(listener):
    """Everything of its connections that refers to something else of them."""
    for each in listener._sockets:
        session = each.protocol
        yield from map(weakref.ref, (each, each.reader, each.reader.runner, session, session.inbound, session.downstream))
        if isinstance(each._transport, TlsTransport):
            yield from map(weakref.ref, (each._transport, each._transport._tls))
        if not session._state.epoch:
            yield from map(weakref.ref, (session._state, session._state.outbound))


async def ended(wire):
    """Until the listener has closed the connection."""
    while await wire.receive() is not None:
        pass


async def leave(wire):
    await wire.send(Disconnect(code=Reason.SUCCESS))
    await ended(wire)


async def lie(wire):
    await wire.send(b"\x00\x00")
    await ended(wire)


async def cut(wire):
    wire.cut()


@pytest.mark.fault("N5")
@pytest.mark.parametrize("expiry_s", [0, 60], ids=["session ends", "session lasts"])
@pytest.mark.parametrize("end", [leave, lie, cut])
@pytest.mark.parametrize("with_tls", [False, True], ids=["plain", "tls"])
async def test_connection_that_ends_leaves_nothing_to_the_garbage_collector(
    dial, listening, no_collector, folder, end, expiry_s, with_tls
):
    secured = MqttTlsFiles(folder) if with_tls else None
    settings, tls = ({}, None) if secured is None else (secured.settings(), secured.device("lamp-1"))
    async with listening(MemoryPort(), MemoryCommands(), **settings) as listener:
        for number in range(CONNECTIONS):
            properties = Properties(session_expiry_s=expiry_s)
            async with dial(listener, f"lamp-{number}", tls=tls, properties=properties) as (wire, _):
                await wire.subscribe("command///req/#")
                await wire.publish("telemetry")
                await wire.receive()
                left = list(objects_of(listener))
                listener._empty.clear()
                await end(wire)
            await listener._empty.wait()
            assert [each() for each in left if each() is not None] == []


@pytest.mark.fault("N5")
async def test_connection_that_is_taken_over_leaves_nothing_to_the_garbage_collector(dial, listening, no_collector):
    async with listening(MemoryPort(), MemoryCommands()) as listener, dial(listener, "lamp-1") as (former, _):
        await former.subscribe("command///req/#")
        left = list(objects_of(listener))
        async with dial(listener, "lamp-1") as (wire, _):
            await wire.alive()
            await ended(former)
            listener._empty.clear()
            former.cut()
        await listener._empty.wait()
        assert [each() for each in left if each() is not None] == []


async def test_socket_that_takes_bytes_again_is_closed_only_afterwards(dial, listening):
    """A transport that is closed within `resume_writing` is ended twice by asyncio, which logs a traceback."""
    async with listening(MemoryPort()) as listener, dial(listener, "lamp-1") as (wire, _):
        (connection,) = listener._sockets
        transport = connection._transport
        connection.reader.runner.bulky = True
        connection.pause_writing()
        connection.reader.feed(Disconnect(code=Reason.SUCCESS).encode(wire.version))
        connection.resume_writing()
        assert not transport.is_closing()
        await ended(wire)
        assert listener.counters.left == 1
