"""Sends all streams of the outbox over one connection, with one task for each stream."""

import asyncio

from fogline.amqp.events import Link
from fogline.errors import Unreachable
from fogline_edge.outbox.writer.stream_views import StreamView
from fogline_edge.uplink.lanes import LaneLinks
from fogline_edge.uplink.pump import Pump, PumpContext

PROGRESS_S = 30.0
"""The connection is given up if events are in flight and none is settled for so long."""


class StreamPumps:
    """One `Pump` for each stream. `connection_end`: the reason for the end of the connection, once it is over."""

    def __init__(self, context: PumpContext, lanes: LaneLinks, connection_end: "asyncio.Future[str]") -> None:
        self._context = context
        self._outbox = context.outbox
        self._lanes = lanes
        self._connection_end = connection_end
        self._pumps: dict[str, Pump] = {}
        self._new_rows = asyncio.Event()

    async def run(self) -> None:
        """Send until the connection ends. Raises `Unreachable`, in an exception group."""
        started: set[str] = set()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._raise_at_connection_end(), name="uplink-over")
            group.create_task(self._watch_progress(), name="uplink-progress")
            self._new_rows.set()
            while True:
                await self._new_rows.wait()
                self._new_rows.clear()
                for stream in await self._outbox.streams.pending():
                    if stream.stream not in started:
                        started.add(stream.stream)
                        group.create_task(self._serve(stream), name=f"uplink-{stream.lane}-{stream.stream}")

    def wake(self, stream: str | None) -> None:
        """Send rows that the outbox has committed, in `stream` or in any."""
        if stream is None:
            for pump in self._pumps.values():
                pump.wake()
        elif (known := self._pumps.get(stream)) is not None:
            known.wake()
            return
        self._new_rows.set()

    def has_settled(self, link: Link) -> bool:
        """Return True if the bridge has settled an event on this link."""
        return any(pump.progressed for pump in self._pumps.values() if pump.sender.link is link)

    async def _serve(self, stream: StreamView) -> None:
        """Send one stream, over a new link each time that the bridge detaches one."""
        backlog = not stream.open
        while True:
            sender = await self._lanes.sender(stream.lane, backlog=backlog)
            pump = self._pumps[stream.stream] = Pump(self._context, sender, stream, self._lanes.epoch)
            try:
                await pump.run()
            except Unreachable:
                if self._connection_end.done() or not sender.closed:
                    raise
            views = {each.stream: each for each in await self._outbox.streams.pending()}
            if stream.stream not in views:
                return
            stream = views[stream.stream]

    async def _raise_at_connection_end(self) -> None:
        # Shielded, because `BridgeSession` waits for the same future after another task has failed.
        raise Unreachable(await asyncio.shield(self._connection_end))

    async def _watch_progress(self) -> None:
        """Raise `Unreachable` if nothing is settled for `PROGRESS_S`: TCP may stay alive while the bridge hangs."""
        while True:
            watched = {name: (pump, pump.progressed, pump.sender.queued) for name, pump in self._pumps.items() if pump.waiting}
            await asyncio.sleep(PROGRESS_S)
            busy = any(pump.progressed != progressed for pump, progressed, _ in watched.values())
            for name, (pump, progressed, queued) in watched.items():
                if busy and queued:
                    continue  # on a slow line, a link with a small share may wait long for its turn
                stuck = pump.waiting and pump.progressed == progressed and pump.sender.credit
                if stuck and self._pumps[name] is pump:
                    raise Unreachable(f"nothing of stream {name} was settled for {PROGRESS_S:.0f} s")
