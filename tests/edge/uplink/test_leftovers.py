"""A connection that is over is forgotten, although the gateway seldom looks for objects that refer to each other."""

import asyncio
import gc

import pytest

from fogline.amqp.backoff import Backoff
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.settings import EdgeSettings, UplinkSettings
from fogline_edge.uplink.session import BridgeSession
from fogline_edge.uplink.uplink import Uplink
from fogline_lab.bridge.accepting_bridge import AcceptingBridge
from fogline_lab.events import make_arrival


class Cutting(AcceptingBridge):
    """Cuts each connection once something has come over it. `connections`: how many there were."""

    def __init__(self) -> None:
        super().__init__()
        self.connections = 0

    def opened(self, connection, peer) -> None:
        self.connections += 1
        super().opened(connection, peer)

    def received(self, connection, delivery, data) -> None:
        super().received(connection, delivery, data)
        if delivery.link.properties.get("lane"):
            connection.abort()


@pytest.fixture
def seldom():
    """Nobody looks for cycles unasked."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def test_sessions_do_not_pile_up_over_reconnects(folder, seldom):
    bridge = Cutting()
    uplink = UplinkSettings(bridge=f"127.0.0.1:{await bridge.serve()}", batch_events=5)
    outbox = Outbox.open(EdgeSettings(tenant="acme", gateway="gw-1", data=str(folder / "data"), uplink=uplink))
    serving = asyncio.create_task(Uplink(outbox, uplink, lambda *_: None, Backoff(0.01, 0.01)).run())
    for number in range(200):
        outbox.port.put(make_arrival(number), lambda _: None)
    await bridge.until(lambda: bridge.connections > 20, "the gateway does not come again")
    assert sum(type(each) is BridgeSession for each in gc.get_objects()) <= 3
    serving.cancel()
    await asyncio.wait({serving})
    await outbox.close()
    bridge.close()
