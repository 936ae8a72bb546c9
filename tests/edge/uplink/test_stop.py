"""The uplink is cancelled at each turn of the loop after the end of its connection, and ends each time."""

import asyncio

import pytest

from fogline.amqp.backoff import Backoff
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.settings import EdgeSettings, UplinkSettings
from fogline_edge.uplink.uplink import Uplink
from fogline_lab.amqp import within
from fogline_lab.bridge.accepting_bridge import AcceptingBridge
from fogline_lab.events import make_arrival

TURNS = 30
"""Turns of the loop within which an uplink notes the end of its connection, and waits for the next attempt."""


class CuttableBridge(AcceptingBridge):
    """A bridge that can cut the connection of its gateway. `connection`: the present one."""

    def opened(self, connection, peer):
        super().opened(connection, peer)
        self.connection = connection


@pytest.mark.fault("C15")
async def test_an_uplink_that_is_stopped_while_its_connection_ends_stops(folder, monkeypatch, thorough):
    monkeypatch.setattr("fogline.process.cancellation.AGAIN_S", 60.0)  # so that only the first cancellation counts
    bridge = CuttableBridge()
    settings = UplinkSettings(bridge=f"127.0.0.1:{await bridge.serve()}")
    outbox = Outbox.open(EdgeSettings(tenant="acme", gateway="gw-1", data=str(folder), uplink=settings))
    lost = []
    try:
        outbox.port.put(make_arrival(1), lambda _: None)
        for turns in range(0, TURNS, 1 if thorough else 3):
            uplink = Uplink(outbox, settings, lambda *_: None, Backoff(base_s=60.0, cap_s=60.0))
            task = asyncio.create_task(uplink.run(), name="uplink")
            while not uplink.connected:  # noqa: ASYNC110 - no event tells
                await asyncio.sleep(0.001)
            await bridge.until(bridge.events, "the event does not arrive")
            bridge.connection.abort()
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            _, left = await asyncio.wait({task}, timeout=2.0)
            if left:
                lost.append(turns)
                task.cancel()
                await within(asyncio.wait({task}), "it survives a second cancellation")
    finally:
        await outbox.close()
        bridge.close()
    assert lost == [], "cancelled after so many turns, it went on"
