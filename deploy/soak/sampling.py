"""Samples memory and counts of each process every few seconds: /proc, and `fogline.process.monitoring.statistics`."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

from demo.snapshot import Snapshot
from fogline_lab.supervisor import ChildProcess
from soak.flat import LineTotals, ProcessSample

ANSWER_S = 0.5
"""Time that parts have to print their counts."""
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Sampler:
    """Takes `samples` of every part that serves and totals of the `flow`, each `every_s`. Times are since `run` began.

    `asked`: the parts that print their counts after SIGUSR1.
    """

    def __init__(
        self, parts: Iterable[ChildProcess], asked: Iterable[ChildProcess], snapshot: Snapshot, every_s: float
    ) -> None:
        self.samples: list[ProcessSample] = []
        self.flow: list[LineTotals] = []
        self._parts = list(parts)
        self._asked = list(asked)
        self._snapshot = snapshot
        self._every_s = every_s
        self._began = time.monotonic()

    async def run(self) -> None:
        """Take samples until cancelled."""
        self._began = time.monotonic()
        while True:
            await self.take()
            await asyncio.sleep(self._every_s - ANSWER_S)

    async def take(self) -> None:
        """Take one sample of each part that serves, and of the flow."""
        self.samples += await self.look()
        at_s, snapshot = round(time.monotonic() - self._began, 1), self._snapshot
        acknowledged, committed = snapshot.devices.acknowledged.total, snapshot.kafka.events.total
        self.flow.append(LineTotals(at_s, acknowledged, committed, snapshot.flow.rows.total, snapshot.backlog, snapshot.lag))

    async def look(self) -> list[ProcessSample]:
        """Return a sample of each part that serves. Must not run together with `run`."""
        self._snapshot.census.clear()
        for part in self._asked:
            if part.serving and part.name not in self._snapshot.down:
                part.send(signal.SIGUSR1)
        await asyncio.sleep(ANSWER_S)
        at_s = round(time.monotonic() - self._began, 1)
        found: list[ProcessSample] = []
        for part in self._parts:
            if part.serving:
                held = await asyncio.to_thread(held_by, part.members())
                told = self._snapshot.census.get(part.name, {})
                found.append(
                    ProcessSample(at_s, part.name, part.starts, *held, tasks=told.get("tasks"), unsettled=told.get("unsettled"))
                )
        return found


def held_by(pids: Iterable[int]) -> tuple[float, int, int]:
    """Return the resident memory in MB, open descriptors and threads of these processes together."""
    rss_bytes = descriptors = threads = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            process = Path(f"/proc/{pid}")
            rss_bytes += int((process / "statm").read_text().split()[1]) * _PAGE_BYTES
            descriptors += len(list((process / "fd").iterdir()))
            threads += len(list((process / "task").iterdir()))
    return round(rss_bytes / 1e6, 1), descriptors, threads
