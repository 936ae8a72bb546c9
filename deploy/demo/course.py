"""The course of a run, whatever happens on the way: everything is started, watched, drained, and its ledger verified."""

import asyncio
import json
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from demo.parts import Part
from demo.picture import Picture
from demo.place import Place
from demo.waiting import until
from demo.watch import KafkaTail, look_at_outbox, look_at_table, settled_streams, watch_outboxes, watch_table
from demo.world import World
from fogline.errors import FoglineError

FINISH_LIMIT_S = 30.0
"""How long the devices may take until everything is acknowledged."""
STILL_S = 120.0
"""For so long nothing of what was acknowledged may arrive in Kafka, or, once Spark runs, in the table, until all has."""


class Course:
    """`problems`: what went wrong, in words. `fallen`: a part has ended by itself, and everything further is in vain.

    `cycles`, `seed`: as `World`.
    """

    def __init__(self, place: Place, picture: Picture, *, cycles: int = 0, seed: int = 1) -> None:
        self.problems: list[str] = []
        self.fallen = asyncio.Event()
        self.world = World(place, picture, self._ended, cycles=cycles, seed=seed)
        self._place = place
        self._picture = picture
        self._landed: dict[str, int] = {}

    async def started(self, stop: asyncio.Event) -> bool:
        """Start all parts, unless `stop` is set first. Raises `Misconfigured`."""
        start = asyncio.create_task(self.world.start(), name="start")
        stopped = asyncio.create_task(stop.wait(), name="stop")
        await asyncio.wait([start, stopped], return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not start.done():
            await cancel(start)
            return False
        try:
            start.result()
        except* FoglineError as group:
            raise _first(group) from None
        return True

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Within this the picture is up to date."""
        tail = KafkaTail(self._place, self._picture)
        tail.start()
        watchers = [
            asyncio.create_task(watch_outboxes(self._place, self._picture), name="outboxes"),
            asyncio.create_task(watch_table(self._place, self._picture), name="table"),
        ]
        try:
            yield
        finally:
            await cancel(*watchers)
            await tail.stop()

    async def finish(self, devices: Part) -> None:
        """Until the devices have their last acknowledgements."""
        self._picture.doing = "devices wait for their last acknowledgements"
        devices.tell("finish")
        if not await self.until(lambda: not devices.running, FINISH_LIMIT_S):
            self.problems.append(f"{self._picture.devices.waiting} messages were not acknowledged")
        self.world.hush()

    async def emptied(self) -> None:
        """Until the outboxes are empty."""
        self._picture.doing = "waiting until everything is in the table"
        kafka = self._picture.kafka.events
        if not await self._moving(lambda: self._picture.backlog == 0, lambda: kafka.total):
            self.problems.append(f"{self._picture.backlog} events are still in the outboxes")

    async def drain(self, settle: Callable[[], Awaitable[None]]) -> None:
        """Until everything is in the table; end gateways, bridges and Spark in the order of the flow.

        `settle`: wait for whatever is still on its way back.
        """
        picture = self._picture
        await self.emptied()
        await self.world.stop_gateways()
        for name, news in picture.gateways.items():
            look_at_outbox(self._place.outbox(name), news)
        self._landed = settled_streams(self._place)
        await self.world.stop_bridges()
        if not self.fallen.is_set():
            await settle()
        if not await self._moving(self._arrived, lambda: picture.flow.rows.total):
            self.problems.append(f"{picture.lag} records of Kafka are not in the table")
        picture.doing = "stopping Spark"
        await self.world.spark.stop()
        look_at_table(self._place, picture)

    def _arrived(self) -> bool:
        picture = self._picture
        read = all(picture.kafka.highest.get(stream, 0) >= settled for stream, settled in self._landed.items())
        return read and picture.lag == 0 and picture.flow.batch >= picture.flow.newest

    async def until(self, condition: Callable[[], bool], limit_s: float) -> bool:
        """As `until`, but it is in vain once a part has ended by itself."""
        await until(lambda: condition() or self.fallen.is_set(), limit_s)
        return condition()

    async def _moving(self, condition: Callable[[], bool], count: Callable[[], int]) -> bool:
        """As `until`, for as long as `count` grows every now and then."""
        highest, grew_at = count(), time.monotonic()

        def over() -> bool:
            nonlocal highest, grew_at
            if count() > highest:
                highest, grew_at = count(), time.monotonic()
            return condition() or time.monotonic() - grew_at > STILL_S

        await self.until(over, math.inf)
        return condition()

    async def verified(self) -> dict[str, Any] | None:
        """What `fogline ledger verify` says; that it does not balance, or cannot be read, is a problem."""
        status, printed = await self.world.verify()
        try:
            ledger: dict[str, Any] = json.loads(printed)
        except ValueError:
            self.problems.append(f"the ledger could not be verified: see {self._place.logs / 'ledger.log'}")
            return None
        if status == 1:
            self.problems.append("the ledger does not balance")
        return ledger

    def _ended(self, part: Part) -> None:
        self.problems.append(f"{part.name} ended {part.status}, and nobody told it to: {part.last_words()}")
        self.fallen.set()


def _first(group: BaseExceptionGroup[FoglineError]) -> FoglineError:
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


async def cancel(*tasks: asyncio.Task[None]) -> None:
    """End tasks, and wait until they have."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
