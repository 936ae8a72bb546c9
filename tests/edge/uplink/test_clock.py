"""The bridge's time in hello is held against the gateway's clock."""

import asyncio
from contextlib import asynccontextmanager

import msgspec
import pytest

from fogline.amqp.backoff import Backoff
from fogline.gateway import hello
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.settings import EdgeSettings, UplinkSettings
from fogline_edge.uplink.uplink import Uplink
from fogline_lab.bridge.accepting_bridge import AcceptingBridge
from fogline_lab.clock import RIGHT_NS, SECOND_NS, FakeClock
from fogline_lab.events import make_arrival


class Timed(AcceptingBridge):
    """Says in hello that it is `time_ns`; without, it says nothing, as older bridges do."""

    def __init__(self, time_ns: int | None) -> None:
        super().__init__()
        self.time_ns = time_ns

    def welcome(self, asked: hello.Hello) -> bytes:
        found = msgspec.json.decode(super().welcome(asked))
        del found["time_ms"]
        if self.time_ns is not None:
            found["time_ms"] = self.time_ns // 1_000_000
        return msgspec.json.encode(found)


@asynccontextmanager
async def gateway(folder, bridge: AcceptingBridge, clock: FakeClock):
    uplink = UplinkSettings(bridge=f"127.0.0.1:{await bridge.serve()}")
    settings = EdgeSettings(tenant="acme", gateway="gw-1", data=str(folder / "data"), uplink=uplink)
    outbox = Outbox.open(settings, clock=clock)
    outbox.port.put(make_arrival(1), lambda _: None)
    serving = asyncio.create_task(Uplink(outbox, uplink, lambda *_: None, Backoff(0.01, 0.01)).run())
    try:
        yield
        assert not serving.done()
    finally:
        serving.cancel()
        await asyncio.wait({serving})
        await outbox.close()
        bridge.close()


@pytest.mark.parametrize(
    ("time_ns", "quality", "warned"),
    [
        (RIGHT_NS + 3 * SECOND_NS, "corrected", False),
        (RIGHT_NS + 86_400 * SECOND_NS, "unsynced", True),
        (None, "unsynced", False),
    ],
    ids=["the bridge agrees", "it does not", "an older bridge"],
)
@pytest.mark.fault("T6")
async def test_a_bridge_that_agrees_makes_the_time_right_before_anything_is_sent(folder, caplog, time_ns, quality, warned):
    """G10."""
    bridge = Timed(time_ns)
    async with gateway(folder, bridge, FakeClock(RIGHT_NS, synchronized=False)):
        ((_, event),) = await bridge.until(lambda: bridge.came, "nothing came")
    assert event.timequality == quality
    assert ("bridge's by -86400 s" in caplog.text) == warned
