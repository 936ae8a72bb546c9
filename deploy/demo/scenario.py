"""Steps that demo and soak share: start all parts, watch them, drain them, verify the ledger."""

import asyncio
import json
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from demo.polling import until
from demo.probes import KafkaTail, look_at_outbox, look_at_table, settled_streams, watch_outboxes, watch_table
from demo.site import Site
from demo.snapshot import Snapshot
from demo.workspace import Workspace
from fogline.errors import FoglineError
from fogline_lab.supervisor import ChildProcess, stop_children

FINISH_LIMIT_S = 30.0
"""The longest wait for the last acknowledgements."""
STILL_S = 120.0
"""The longest pause without progress, in Kafka or, once Spark runs, in the table, until all events have arrived."""


class Scenario:
    """One run. `problems`: texts for the report. `fallen` is set when a part ends by itself: the run cannot succeed any more.

    `cycles`, `seed`: see `Site`.
    """

    def __init__(self, workspace: Workspace, snapshot: Snapshot, *, cycles: int = 0, seed: int = 1) -> None:
        self.problems: list[str] = []
        self.fallen = asyncio.Event()
        self.site = Site(workspace, snapshot, self._ended, cycles=cycles, seed=seed)
        self._workspace = workspace
        self._snapshot = snapshot
        self._landed: dict[str, int] = {}

    async def started(self, stopping: asyncio.Event) -> bool:
        """Start all parts, unless `stopping` is set first. Raises `Misconfigured`."""
        start = asyncio.create_task(self.site.start(), name="start")
        stopped = asyncio.create_task(stopping.wait(), name="stop")
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
        tail = KafkaTail(self._workspace, self._snapshot)
        tail.start()
        watchers = [
            asyncio.create_task(watch_outboxes(self._workspace, self._snapshot), name="outboxes"),
            asyncio.create_task(watch_table(self._workspace, self._snapshot), name="table"),
        ]
        try:
            yield
        finally:
            await cancel(*watchers)
            await tail.stop()

    async def finish(self, devices: ChildProcess) -> None:
        """Stop the devices when they have all acknowledgements."""
        self._snapshot.doing = "waiting for the last acknowledgements"
        devices.tell("finish")
        if not await self.until(lambda: not devices.running, FINISH_LIMIT_S):
            self.problems.append(f"{self._snapshot.devices.waiting} messages were not acknowledged")
        self.site.quiet()

    async def emptied(self) -> None:
        """Wait until the outboxes are empty."""
        self._snapshot.doing = "waiting until all events are in the table"
        kafka = self._snapshot.kafka.events
        if not await self._moving(lambda: self._snapshot.backlog == 0, lambda: kafka.total):
            self.problems.append(f"{self._snapshot.backlog} events are still in the outboxes")

    async def drain(self, settle: Callable[[], Awaitable[None]]) -> None:
        """Wait until all events are in the table; stop gateways, bridges and Spark in the order of the flow.

        `settle` waits for parts that are still being restarted.
        """
        snapshot = self._snapshot
        await self.emptied()
        await self.site.stop_gateways()
        for name, stats in snapshot.gateways.items():
            look_at_outbox(self._workspace.outbox(name), stats)
        self._landed = settled_streams(self._workspace)
        await self.site.stop_bridges()
        if not self.fallen.is_set():
            await settle()
        if not await self._moving(self._arrived, lambda: snapshot.flow.rows.total):
            self.problems.append(f"{snapshot.lag} records of Kafka are not in the table")
        snapshot.doing = "stopping Spark"
        await stop_children(self.site.spark)
        look_at_table(self._workspace, snapshot)

    def _arrived(self) -> bool:
        snapshot = self._snapshot
        read = all(snapshot.kafka.highest.get(stream, 0) >= settled for stream, settled in self._landed.items())
        return read and snapshot.lag == 0 and snapshot.flow.batch >= snapshot.flow.newest

    async def until(self, condition: Callable[[], bool], limit_s: float) -> bool:
        """Wait for `condition`, at most `limit_s`, and not after a part has ended by itself. Returns True if it holds."""
        await until(lambda: condition() or self.fallen.is_set(), limit_s)
        return condition()

    async def _moving(self, condition: Callable[[], bool], count: Callable[[], int]) -> bool:
        """Wait for `condition` as long as `count` grows at least every `STILL_S`. Returns True if it holds."""
        highest, grew_at = count(), time.monotonic()

        def over() -> bool:
            nonlocal highest, grew_at
            if count() > highest:
                highest, grew_at = count(), time.monotonic()
            return condition() or time.monotonic() - grew_at > STILL_S

        await self.until(over, math.inf)
        return condition()

    async def verified(self) -> dict[str, Any] | None:
        """Verify the ledger. Returns its JSON, and notes a problem if it does not balance or cannot be read."""
        status, printed = await self.site.verify()
        try:
            ledger: dict[str, Any] = json.loads(printed)
        except ValueError:
            self.problems.append(f"the ledger could not be verified: see {self._workspace.logs / 'ledger.log'}")
            return None
        if not ledger["balances"]:
            self.problems.append("the ledger does not balance")
        elif status:
            self.problems.append(
                f"the ledger does not prove that the tables are complete: see {self._workspace.logs / 'ledger.log'}"
            )
        return ledger

    def _ended(self, part: ChildProcess) -> None:
        self.problems.append(f"{part.name} {part.end}")
        self.fallen.set()


def _first(group: BaseExceptionGroup[FoglineError]) -> FoglineError:
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


async def cancel(*tasks: asyncio.Task[None]) -> None:
    """Cancel tasks and wait for their end."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
