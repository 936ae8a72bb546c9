"""What each process holds, every few seconds: from /proc, and from gateways and bridges themselves (`fogline.census`)."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

from demo.parts import Part
from demo.picture import Picture
from soak.flat import Flow, Sample

ANSWER_S = 0.5
"""How long parts have to answer what they hold."""
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Sampler:
    """`samples` of every part that serves, `flow` of the whole line, `every_s`. Times are since `run` began.

    `asked`: those of the parts that answer what they hold.
    """

    def __init__(self, parts: Iterable[Part], asked: Iterable[Part], picture: Picture, every_s: float) -> None:
        self.samples: list[Sample] = []
        self.flow: list[Flow] = []
        self._parts = list(parts)
        self._asked = list(asked)
        self._picture = picture
        self._every_s = every_s
        self._began = time.monotonic()

    async def run(self) -> None:
        """Until cancelled."""
        self._began = time.monotonic()
        while True:
            await self.take()
            await asyncio.sleep(self._every_s - ANSWER_S)

    async def take(self) -> None:
        """One sample of each part that serves now, and of the line."""
        self.samples += await self.look()
        at_s, picture = round(time.monotonic() - self._began, 1), self._picture
        acknowledged, committed = picture.devices.acknowledged.total, picture.kafka.events.total
        self.flow.append(Flow(at_s, acknowledged, committed, picture.flow.rows.total, picture.backlog, picture.lag))

    async def look(self) -> list[Sample]:
        """What each part that serves holds now. Not while `run` does."""
        self._picture.census.clear()
        for part in self._asked:
            if part.serving and part.name not in self._picture.down:
                part.send(signal.SIGUSR1)
        await asyncio.sleep(ANSWER_S)
        at_s = round(time.monotonic() - self._began, 1)
        found: list[Sample] = []
        for part in self._parts:
            if part.serving:
                held = await asyncio.to_thread(held_by, part.members())
                told = self._picture.census.get(part.name, {})
                found.append(
                    Sample(at_s, part.name, part.starts, *held, tasks=told.get("tasks"), unsettled=told.get("unsettled"))
                )
        return found


def held_by(pids: Iterable[int]) -> tuple[float, int, int]:
    """Resident memory in MB, open descriptors, and threads of these processes together; one that has ended holds nothing."""
    rss_bytes = descriptors = threads = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            process = Path(f"/proc/{pid}")
            rss_bytes += int((process / "statm").read_text().split()[1]) * _PAGE_BYTES
            descriptors += len(list((process / "fd").iterdir()))
            threads += len(list((process / "task").iterdir()))
    return round(rss_bytes / 1e6, 1), descriptors, threads
