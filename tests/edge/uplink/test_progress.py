"""A connection on which nothing moves is given up, and another one opened."""

import asyncio

from chaos.real_gateway import Bridge
from fogline import address
from fogline.amqp.reconnect import Backoff
from fogline.testing.events import make_arrival
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.settings import Settings, UplinkSettings
from fogline_edge.uplink import session
from fogline_edge.uplink.uplink import Uplink


class Stuck(Bridge):
    """Says nothing of what comes on its first connection, and takes everything on the next."""

    def __init__(self) -> None:
        super().__init__()
        self.connections = 0

    def opened(self, connection, peer) -> None:
        self.connections += 1
        super().opened(connection, peer)

    def received(self, connection, delivery, data) -> None:
        if self.connections > 1 or isinstance(self._places[delivery.link], address.Hello):
            super().received(connection, delivery, data)


async def test_a_bridge_that_settles_nothing_is_left_and_the_gateway_lives(folder, monkeypatch):
    monkeypatch.setattr(session, "PROGRESS_S", 0.2)
    bridge = Stuck()
    uplink = UplinkSettings(bridge=f"127.0.0.1:{await bridge.serve()}")
    outbox = Outbox.open(Settings(tenant="acme", gateway="gw-1", data=str(folder / "data"), uplink=uplink))
    serving = asyncio.create_task(Uplink(outbox, uplink, lambda *_: None, Backoff(0.01, 0.01)).run())
    outbox.put(make_arrival(1), lambda _: None)
    await bridge.until(bridge.events, "the gateway does not send it again")
    assert not serving.done()
    serving.cancel()
    await asyncio.wait({serving})
    await outbox.close()
    bridge.close()
