"""Detects transactions that Kafka ended without a marker in every partition ("hanging", KIP-664). See docs/decisions/0015.

A broker that is killed before the markers may consider the transaction complete without them (seen with 4.4.0). The last stable
offset then never moves. So the bridge relies on a commit only when it sees the markers.
"""

import time
from collections.abc import Iterable, Mapping

from fogline.errors import Unreachable
from fogline_cloud.kafka.clients import KafkaClients, Partition, end_offset

MARKERS_LIMIT_S = 3.0
"""Time within which the last stable offset must reach the high watermark after the end of a transaction."""
_PAUSE_S = 0.1
_FIRST_S = 0.001
_LONGEST_S = 0.008
_GROWTH = 1.4
_REQUEST_LIMIT_S = 3.0


class Markers:
    """The control records of one committed transaction, by partition. Used by one thread."""

    def __init__(self, clients: KafkaClients, ends: Mapping[Partition, int], limit_s: float) -> None:
        self._clients = clients
        began = time.monotonic()
        self._deadline = began + limit_s
        self._next = began + _FIRST_S
        self._pause_s = _FIRST_S
        self._missing = dict(ends)  # by partition, an offset just after one record of the transaction
        self.stable: dict[Partition, int] = {}  # the last stable offset when the marker was seen

    @property
    def due_s(self) -> float:
        """Seconds until the next request. Kafka needs a few milliseconds for a marker, and more under load."""
        return max(0.0, self._next - time.monotonic()) if self._missing else 0.0

    def seen(self) -> bool:
        """Ask Kafka, and return True if `read_committed` consumers see the transaction in every partition.

        Raises `Unreachable` without an answer, and always after the limit: a late marker may be that of an abort.
        """
        if not self._missing:
            return True
        ends = self._clients.stable_ends(self._missing, _REQUEST_LIMIT_S)
        now = time.monotonic()
        if now > self._deadline:
            raise Unreachable(_too_late(self._missing, ends))
        self.stable |= {partition: ends[partition] for partition, end in self._missing.items() if ends[partition] >= end}
        self._missing = {partition: end for partition, end in self._missing.items() if ends[partition] < end}
        self._next = now + self._pause_s
        self._pause_s = min(_GROWTH * self._pause_s, _LONGEST_S)
        return not self._missing


def _too_late(wanted: Mapping[Partition, int], ends: Mapping[Partition, int]) -> str:
    return "; ".join(
        f"{topic}[{partition}]: committed up to offset {end}, but consumers see records up to {ends[topic, partition]}, or the"
        " request took too long: Kafka forgot the transaction's marker, or another program has a transaction open there"
        for (topic, partition), end in wanted.items()
    )


def find_hanging(clients: KafkaClients, partitions: Iterable[Partition], limit_s: float = MARKERS_LIMIT_S) -> list[Partition]:
    """Return the partitions whose last stable offset does not reach the high watermark within `limit_s`.

    The caller must have no open transaction there. An open transaction of another program looks the same. Raises `Unreachable`.
    """
    stable, written = clients.reader(), clients.reader(committed=False)
    try:
        deadline = time.monotonic() + limit_s
        left = list(partitions)
        while left := [each for each in left if end_offset(stable, *each)[1] < end_offset(written, *each)[1]]:
            if time.monotonic() > deadline:
                break
            time.sleep(_PAUSE_S)
        return left
    finally:
        stable.close()
        written.close()
