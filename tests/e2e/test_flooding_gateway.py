"""One gateway that floods the bridge beside an honest one on the same shard: the honest one's events are settled meanwhile."""

import asyncio
from itertools import count

import pytest
from msgspec.structs import replace

from fogline import address
from fogline.address import shard_of
from fogline.amqp.driver import connect
from fogline.amqp.engine import Engine
from fogline.amqp.outcome import DeliveryState
from fogline.amqp.scheduler import Share
from fogline.gateway import hello
from fogline_lab.amqp import End, within
from fogline_lab.events import make_batch
from fogline_lab.line.line import serving

HONEST, LIAR = [name for name in (f"gw-{n}" for n in range(100)) if shard_of(name, 2) == 0][:2]
IN_FLIGHT = 64
"""More than the bridge gives credit for."""
NUMBERS = range(5_000_001, 5_000_006)
"""The honest gateway's events; those of the flood have smaller numbers."""


class Flood:
    """A gateway that sends as fast as it gets credit: batches that are new, known, out of order and unreadable.

    `settled` counts the outcomes by their state.
    """

    def __init__(self, line) -> None:
        self._line = line
        self.settled = dict.fromkeys(DeliveryState, 0)
        self._moved = asyncio.Event()

    async def run(self) -> None:
        """Send until cancelled."""
        peer = End()
        properties = {"tenant": self._line.tenant, "product": hello.PRODUCT}
        connection = await connect("127.0.0.1", self._line.port, Engine(LIAR, properties=properties), peer)
        try:
            await within(peer.is_open.wait(), "the connection did not open")
            place = str(address.IngestAddress(self._line.tenant, 0))
            sender = connection.open_sender(connection.open_session(), "telemetry", place, Share(), {"lane": "telemetry"})
            async with asyncio.TaskGroup() as group:
                for number in range(IN_FLIGHT):
                    group.create_task(self._send(sender, number))
        finally:
            connection.abort()

    async def moves(self) -> None:
        """Wait until one more batch is settled."""
        self._moved.clear()
        await within(self._moved.wait(), "the flood has ended")

    def has_every_outcome(self) -> bool:
        """Return True once batches were accepted, given back and rejected."""
        return all(self.settled[state] for state in (DeliveryState.ACCEPTED, DeliveryState.MODIFIED, DeliveryState.REJECTED))

    async def _send(self, sender, number: int) -> None:
        given = {"gateway": LIAR, "tenant": self._line.tenant, "stream": f"{number:016x}"}
        known, hole = (make_batch(first, first + 49, **given)[1] for first in (1, 10**6))
        for first in count(1, 50):
            new, later = (make_batch(each, each + 49, **given)[1] for each in (first, first + 50))
            unreadable = replace(later, body=b"\xff" * 100_000)
            for message in (new, known, hole, unreadable):
                outcome = await sender.send(message)
                self.settled[outcome.state] += 1
                self._moved.set()


@pytest.mark.fault("N8")
async def test_events_of_a_gateway_are_settled_while_another_one_floods(line):
    flood = Flood(line)
    async with serving(line), line.gateway(HONEST) as outbox:
        flooding = asyncio.create_task(flood.run())
        try:
            for number in NUMBERS:
                await flood.moves()
                await line.put(outbox, number)
                await line.drained(outbox)
            while not flood.has_every_outcome():
                await flood.moves()
        finally:
            flooding.cancel()
            await asyncio.wait({flooding})
    assert [n for n in line.landed() if n in NUMBERS] == [*NUMBERS]
