"""Offsets of one consumer that are on their way, and the position up to which all are settled. Pure."""

from fogline_cloud.kafka.clients import Partition


class SettledOffsets:
    """Positions by partition. A position is the lowest offset that is not settled: a new consumer begins there."""

    def __init__(self) -> None:
        self._open: dict[Partition, dict[int, bool]] = {}  # offsets in their order, and whether they are settled
        self._next: dict[Partition, int] = {}

    def begin(self, partition: Partition, offset: int) -> None:
        """Note where reading begins, in a partition without a position."""
        self._next[partition] = offset

    def taken(self, partition: Partition, offset: int) -> None:
        """Note a record that was read and is not settled."""
        self._open.setdefault(partition, {})[offset] = False
        self._next[partition] = offset + 1

    def settled(self, partition: Partition, offset: int) -> None:
        """Note that a record is settled. Ignored if its partition has gone to another consumer."""
        found = self._open.get(partition, {})
        if offset not in found:
            return
        found[offset] = True
        while found and found[first := next(iter(found))]:
            del found[first]

    def positions(self) -> dict[Partition, int]:
        """Return the position of each partition."""
        return {
            partition: next(iter(self._open.get(partition) or ()), following) for partition, following in self._next.items()
        }

    def forget(self, partition: Partition) -> None:
        """Forget a partition, which goes to another consumer."""
        self._open.pop(partition, None)
        self._next.pop(partition, None)
