"""While a batch is in flight, events that nobody waits for gather for the next one; alarms do not."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import pytest

from fogline import address
from fogline.amqp.backoff import Backoff
from fogline.amqp.outcome import ACCEPTED
from fogline.amqp.wire import decode
from fogline.events.codec import decode_range
from fogline.events.event import Lane
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.settings import EdgeSettings, UplinkSettings
from fogline_edge.uplink import batch_delay
from fogline_edge.uplink.uplink import Uplink
from fogline_lab.bridge.accepting_bridge import AcceptingBridge
from fogline_lab.events import make_arrival

FULL = 16
"""Events of a full batch: the first is as large, so that several are in flight from the beginning."""
LONG_S = 600.0


class Withholding(AcceptingBridge):
    """Settles batches of events only in `settle`. `batches`: lane and events of each that came."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[tuple[Lane, int]] = []
        self._owed = []

    def received(self, connection, delivery, data) -> None:
        if isinstance(self._places[delivery.link], address.HelloAddress):
            super().received(connection, delivery, data)
            return
        span = decode_range(decode(data))
        self.batches.append((span.lane, span.last - span.first + 1))
        self._owed.append((connection, delivery))
        self._changed.set()

    def settle(self) -> None:
        """Accept what has come."""
        for connection, delivery in self._owed:
            connection.settle(delivery, ACCEPTED)
        self._owed.clear()


@dataclass
class Line:
    """A gateway's outbox whose events go to a bridge."""

    bridge: Withholding
    outbox: Outbox
    stored: int = field(default=0)

    async def put(self, events: int, lane: Lane = Lane.TELEMETRY) -> None:
        """Store events, each in a commit of its own."""
        for _ in range(events):
            done = asyncio.get_running_loop().create_future()
            self.outbox.port.put(make_arrival(self.stored, lane=lane), done.set_result)
            self.stored += 1
            await done

    async def until(self, *batches: tuple[Lane, int]) -> None:
        """Until exactly these batches have come."""
        await self.bridge.until(lambda: len(self.bridge.batches) >= len(batches), f"no batch {len(batches)} comes")
        assert self.bridge.batches == [*batches]


@asynccontextmanager
async def line(folder) -> AsyncIterator[Line]:
    """A line, for the length of a block."""
    bridge = Withholding()
    uplink = UplinkSettings(bridge=f"127.0.0.1:{await bridge.serve()}", batch_events=FULL, statement_s=LONG_S)
    outbox = Outbox.open(EdgeSettings(tenant="acme", gateway="gw-1", data=str(folder / "data"), uplink=uplink))
    serving = asyncio.create_task(Uplink(outbox, uplink, lambda *_: None, Backoff(0.01, 0.01)).run())
    try:
        yield Line(bridge, outbox)
    finally:
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving
        await outbox.close()
        bridge.close()


async def test_events_that_come_while_a_batch_is_in_flight_are_sent_together_after_it(folder, monkeypatch):
    monkeypatch.setattr(batch_delay, "LONGEST_S", LONG_S)
    async with line(folder) as made:
        await made.put(1)
        await made.until((Lane.TELEMETRY, 1))
        await made.put(5)
        made.bridge.settle()
        await made.until((Lane.TELEMETRY, 1), (Lane.TELEMETRY, 5))


async def test_enough_events_for_a_batch_wait_for_no_more(folder, monkeypatch):
    monkeypatch.setattr(batch_delay, "LONGEST_S", LONG_S)
    async with line(folder) as made:
        await made.put(1)
        await made.until((Lane.TELEMETRY, 1))
        await made.put(FULL)
        await made.until((Lane.TELEMETRY, 1), (Lane.TELEMETRY, FULL))


async def test_events_gather_only_so_long_if_the_bridge_settles_nothing(folder, monkeypatch):
    monkeypatch.setattr(batch_delay, "LONGEST_S", 0.05)
    async with line(folder) as made:
        await made.put(1)
        await made.until((Lane.TELEMETRY, 1))
        await made.put(1)
        await made.until((Lane.TELEMETRY, 1), (Lane.TELEMETRY, 1))


@pytest.mark.parametrize("lane", [Lane.ALARM, Lane.REPLY])
async def test_alarms_and_replies_are_not_delayed(folder, monkeypatch, lane):
    monkeypatch.setattr(batch_delay, "LONGEST_S", LONG_S)
    async with line(folder) as made:
        await made.put(1, lane)
        await made.until((lane, 1))
        await made.put(1, lane)
        await made.until((lane, 1), (lane, 1))
