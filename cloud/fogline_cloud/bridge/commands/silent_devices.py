"""The number of devices of the registry that are silent for too long, as metrics."""

import threading
import time
from collections import Counter
from collections.abc import Iterator

from fogline.process.monitoring.metrics import Sample
from fogline_cloud.bridge.commands.devices import Devices
from fogline_cloud.devices.silence import SilenceRules, silent_counts_of
from fogline_cloud.settings import CloudSettings, Learn

COUNT_S = 30.0
"""Time between two counts. Each looks at every device, on a thread."""


class SilentDevices:
    """Counts silent devices now and then while somebody reads the metrics. `rules`: the longest silences.

    `read` is called on the loop.
    """

    def __init__(self, devices: Devices, settings: CloudSettings) -> None:
        self.rules = SilenceRules(settings.fleet.silent)
        self._devices = devices
        self._is_known = settings.devices.learn is not Learn.NONE
        self._counts: Counter[tuple[str, str]] = Counter()
        self._counted_at = -COUNT_S
        self._thread: threading.Thread | None = None

    def read(self) -> Iterator[Sample]:
        """Yield the samples of the last count, and begin another one if that is old. No sample before the registry is read."""
        is_counting = self._thread is not None and self._thread.is_alive()
        if self._is_known and self._devices.loaded and not is_counting and time.monotonic() - self._counted_at >= COUNT_S:
            self._counted_at = time.monotonic()
            self._thread = threading.Thread(target=self._count, name="silent devices", daemon=True)
            self._thread.start()
        for labels, count in self._counts.items():
            yield Sample("fogline_bridge_silent_devices", count, labels)

    def _count(self) -> None:
        self._counts = silent_counts_of(self._devices.table, self.rules, time.time())
