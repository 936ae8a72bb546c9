"""The number of devices of the registry that are silent for too long, as metrics."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator

from fogline.process.monitoring.metrics import Sample
from fogline_cloud.bridge.commands.devices import Devices
from fogline_cloud.devices.device_search import TURN
from fogline_cloud.devices.silence import SilenceRules, SilentCount
from fogline_cloud.settings import CloudSettings, Learn

COUNT_S = 30.0
"""Time between two counts. Each looks at every device, some in a turn of the loop."""


class SilentDevices:
    """Counts silent devices now and then while somebody reads the metrics. `rules`: the longest silences.

    All methods run on the loop.
    """

    def __init__(self, devices: Devices, settings: CloudSettings) -> None:
        self.rules = SilenceRules(settings.fleet.silent)
        self._devices = devices
        self._is_known = settings.devices.learn is not Learn.NONE
        self._counts: Counter[tuple[str, str]] = Counter()
        self._counted_at = -COUNT_S
        self._counting: asyncio.Task[None] | None = None

    def read(self) -> Iterator[Sample]:
        """Yield the samples of the last count, and begin another one if that is old. No sample before the registry is read."""
        is_old = time.monotonic() - self._counted_at >= COUNT_S
        if self._is_known and self._devices.loaded and self._counting is None and is_old:
            self._counting = asyncio.create_task(self._count(), name="silent devices")
        for labels, count in self._counts.items():
            yield Sample("fogline_bridge_silent_devices", count, labels)

    def close(self) -> None:
        """End a count that is under way."""
        if self._counting is not None:
            self._counting.cancel()

    async def _count(self) -> None:
        try:
            found = SilentCount(self.rules, time.time())
            for number, device in enumerate(self._devices.table):
                if number % TURN == 0:
                    await asyncio.sleep(0)
                found.add(device)
            self._counts, self._counted_at = found.counts, time.monotonic()
        finally:
            self._counting = None
