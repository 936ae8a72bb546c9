"""Transactions that Kafka has ended without a marker in every partition ("hanging", KIP-664).

A broker that is killed between the decision to commit and the markers, and starts again alone, may hold the transaction
for complete without having written them (seen with 4.4.0). The partition's last stable offset then stays where it is, and
with it every reader of committed records, for ever. See docs/decisions/0015.

So a commit is believed when its markers are seen, and whoever takes a shard looks for what hangs.
"""

import time
from collections.abc import Callable, Iterable, Mapping

from fogline.errors import Unreachable
from fogline_cloud.kafka import KafkaClients, Partition, StableEnds, end_offset

MARKERS_LIMIT_S = 3.0
"""So long the last stable offset may lag behind a transaction that has just ended."""
_AGAIN_S = 0.1
_SOON_S = 0.001


class Markers:
    """Those of a transaction that was committed up to `ends`. Used by one thread.

    `when_known`: called on another thread whenever `seen` can say more than before.
    """

    def __init__(
        self,
        clients: KafkaClients,
        ends: Mapping[Partition, int],
        limit_s: float,
        when_known: Callable[[], None] = lambda: None,
    ) -> None:
        self._clients = clients
        self._limit_s = limit_s
        self._deadline = time.monotonic() + limit_s
        self._left = dict(ends)
        self._when_known = when_known
        self._asked = self._ask() if ends else None

    def _ask(self) -> StableEnds:
        asked = self._clients.stable_ends(self._left, self._limit_s)
        asked.when_done(self._when_known)
        return asked

    def seen(self) -> bool:
        """Whether readers of committed records see all of it. Does not wait; raises `Unreachable` when the limit is over."""
        if self._asked is None:
            return True
        if not self._asked.done:
            return False
        why = self._take(self._asked)
        if not self._left:
            self._asked = None
            return True
        if time.monotonic() > self._deadline:
            raise Unreachable(why)
        self._asked = self._ask()
        return False

    def _take(self, asked: StableEnds) -> str:
        """Strike off what is seen; returns why the rest is not."""
        try:
            ends = asked.result()
        except Unreachable as error:
            time.sleep(_AGAIN_S)
            return str(error)
        self._left = {place: end for place, end in self._left.items() if ends[place] < end}
        return "; ".join(
            f"{topic}[{partition}]: committed up to {end}, but readers see no more than {ends[topic, partition]}:"
            " Kafka forgot the transaction's marker, or a stranger's transaction is open there"
            for (topic, partition), end in self._left.items()
        )

    def wait(self) -> None:
        """Until they are seen. Raises `Unreachable`."""
        while not self.seen():
            time.sleep(_SOON_S)


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
