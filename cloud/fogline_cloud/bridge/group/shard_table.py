"""The shards of this bridge, by number, and calls from their threads onto the event loop."""

from collections.abc import Iterator

from fogline.address import shard_of
from fogline_cloud.shard.shard import Shard


class ShardTable:
    """The shards that this bridge owns, ready or not, of `count` shards of the tenant. Used on the loop only."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.owned: dict[int, Shard] = {}

    def __iter__(self) -> Iterator[Shard]:
        return iter(self.owned.values())

    def number_of(self, name: str) -> int:
        """Return the number of the shard to which a gateway, or a device without a gateway, belongs."""
        return shard_of(name, self.count)

    def ready(self, shard_number: int) -> Shard | None:
        """Return the shard if this bridge owns it and it accepts work."""
        shard = self.owned.get(shard_number)
        return shard if shard is not None and shard.ready else None

    def has(self, numbers: str) -> bool:
        """Return True if all of these shards, separated by commas, are here and accept work. False without a number."""
        return all(each.isdecimal() and self.ready(int(each)) is not None for each in numbers.split(","))

    @property
    def all_ready(self) -> bool:
        """True if this bridge owns all shards of the tenant, and all of them accept work."""
        return len(self.owned) == self.count and all(shard.ready for shard in self)
