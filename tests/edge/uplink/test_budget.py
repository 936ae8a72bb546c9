"""`uplink.max_kib_s`: a backlog goes out at that rate, and no faster; what must not wait does not."""

import asyncio
import os
from contextlib import suppress
from itertools import pairwise

import pytest

from fogline.amqp.backoff import Backoff
from fogline.amqp.wire import decode
from fogline.events.event import Lane
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.settings import EdgeSettings, UplinkSettings
from fogline_edge.uplink.uplink import Uplink
from fogline_lab.bridge.accepting_bridge import AcceptingBridge
from fogline_lab.clock import pass_time
from fogline_lab.events import make_arrival

KIB_S = 4.0
EVENTS = 400
ALARM = 1_000


class Clocked(AcceptingBridge):
    """Writes down when each message came, and how long its body was."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[tuple[float, int]] = []

    def received(self, connection, delivery, data) -> None:
        self.messages.append((asyncio.get_running_loop().time(), len(decode(data).body)))
        super().received(connection, delivery, data)


async def let_pass() -> None:
    """Let a quarter of a second pass, and give what goes out then some time to arrive."""
    pass_time(0.25)
    await asyncio.sleep(0.005)


@pytest.mark.fault("N1")
async def test_a_backlog_goes_out_at_the_rate_that_is_set_and_alarms_do_not_wait(folder):
    bridge = Clocked()
    uplink = UplinkSettings(bridge=f"127.0.0.1:{await bridge.serve()}", batch_events=25, max_kib_s=KIB_S)
    outbox = Outbox.open(EdgeSettings(tenant="acme", gateway="gw-1", data=str(folder / "data"), uplink=uplink))
    for number in range(EVENTS):
        outbox.port.put(make_arrival(number, data=os.urandom(400)), lambda _: None)
    serving = asyncio.create_task(Uplink(outbox, uplink, lambda *_: None, Backoff(0.01, 0.01)).run())
    began = asyncio.get_running_loop().time()
    while len(bridge.came) < EVENTS / 4:
        await let_pass()
    outbox.port.put(make_arrival(ALARM, lane=Lane.ALARM), lambda _: None)
    await bridge.until(lambda: any(event.lane is Lane.ALARM for _, event in bridge.came), "the alarm waits for the budget")
    while len(bridge.came) <= EVENTS:
        await let_pass()
    place = [event.lane for _, event in bridge.came].index(Lane.ALARM)
    serving.cancel()
    with suppress(asyncio.CancelledError):
        await serving
    await outbox.close()
    bridge.close()

    rate, before = KIB_S * 1024, 0
    for (_, length), (at, _) in pairwise(bridge.messages):
        before += length
        allowed = rate + rate * (at - began) + 2 * max(length for _, length in bridge.messages)
        assert before <= allowed, f"{before} bytes after {at - began:.2f} s"
    assert before > 2 * rate, "too little to need the cap"
    assert place < EVENTS * 3 / 4, "the alarm waited"
