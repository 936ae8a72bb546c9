"""Transactions that Kafka has ended without a marker in every partition ("hanging", KIP-664).

A broker that is killed between the decision to commit and the markers, and starts again alone, may hold the transaction
for complete without having written them (seen with 4.4.0). The partition's last stable offset then stays where it is, and
with it every reader of committed records, for ever. See docs/decisions/0015.

So a commit is believed when its markers are seen, and whoever takes a shard looks for what hangs.
"""

import time
from collections.abc import Iterable, Mapping

from fogline.errors import Unreachable
from fogline_cloud.kafka import KafkaClients, Partition, end_offset

MARKERS_LIMIT_S = 3.0
"""So long the last stable offset may lag behind a transaction that has just ended."""
_AGAIN_S = 0.1
_FIRST_S = 0.001
_LONGEST_S = 0.008
_GROWTH = 1.4
_ASK_LIMIT_S = 3.0


class Markers:
    """Those of a transaction that was committed, of whose records the one before `ends` is one. Used by one thread.

    `stable`: where a partition's committed records ended when the marker was seen there, markers included.
    """

    def __init__(self, clients: KafkaClients, ends: Mapping[Partition, int], limit_s: float) -> None:
        self._clients = clients
        began = time.monotonic()
        self._deadline = began + limit_s
        self._next = began + _FIRST_S
        self._pause_s = _FIRST_S
        self._left = dict(ends)
        self.stable: dict[Partition, int] = {}

    @property
    def due_s(self) -> float:
        """In how many seconds to look again: it takes Kafka a few milliseconds, more when it is busy."""
        return max(0.0, self._next - time.monotonic()) if self._left else 0.0

    def seen(self) -> bool:
        """Ask Kafka whether readers of committed records see it.

        Raises `Unreachable` when the limit is over, whatever is seen then, or when Kafka does not answer: the markers of a
        broker that was away may be those of an abort (docs/decisions/0015).
        """
        if not self._left:
            return True
        ends = self._clients.stable_ends(self._left, _ASK_LIMIT_S)
        now = time.monotonic()
        if now > self._deadline:
            raise Unreachable(_too_late(self._left, ends))
        self.stable |= {place: ends[place] for place, end in self._left.items() if ends[place] >= end}
        self._left = {place: end for place, end in self._left.items() if ends[place] < end}
        self._next = now + self._pause_s
        self._pause_s = min(_GROWTH * self._pause_s, _LONGEST_S)
        return not self._left


def _too_late(wanted: Mapping[Partition, int], ends: Mapping[Partition, int]) -> str:
    return "; ".join(
        f"{topic}[{partition}]: committed up to {end}, but readers see no more than {ends[topic, partition]}, or it took too"
        " long to look: Kafka forgot the transaction's marker, or a stranger's transaction is open there"
        for (topic, partition), end in wanted.items()
    )


def find_hanging(clients: KafkaClients, partitions: Iterable[Partition], limit_s: float = MARKERS_LIMIT_S) -> list[Partition]:
    """Those whose last stable offset does not reach the high watermark in `limit_s`. Raises `Unreachable`.

    Call it when no producer of ours has a transaction open there. That of a stranger looks the same.
    """
    stable, written = clients.reader(), clients.reader(committed=False)
    try:
        deadline = time.monotonic() + limit_s
        left = list(partitions)
        while left := [each for each in left if end_offset(stable, *each)[1] < end_offset(written, *each)[1]]:
            if time.monotonic() > deadline:
                break
            time.sleep(_AGAIN_S)
        return left
    finally:
        stable.close()
        written.close()
