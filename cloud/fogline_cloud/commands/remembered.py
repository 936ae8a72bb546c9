"""Keys in the order in which they came, with bounds for all of them and for one owner. Pure."""

from collections import Counter
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bounds:
    """The most keys and bytes at a time, and the oldest that one may be. `owner_share`: of both, the most for one owner."""

    keys: int
    size_bytes: int
    age_ms: int
    owner_share: float = 1.0


@dataclass(frozen=True, slots=True)
class _Entry:
    owner: str
    size_bytes: int
    since_ms: int


class Remembered:
    """A set of keys that forgets: `excess` names what has to go. `size_bytes`: of all of them together."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self._entries: dict[str, _Entry] = {}
        self._of_owner: dict[str, dict[str, None]] = {}
        self._owner_bytes: Counter[str] = Counter()
        self._now_ms = 0

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, key: str, owner: str, size_bytes: int, since_ms: int, now_ms: int) -> None:
        """Add a key as the newest. `now_ms`: a `since_ms` beyond it is taken for wrong, and makes nothing else old."""
        self.discard(key)
        self._now_ms = max(self._now_ms, min(since_ms, now_ms))
        self._entries[key] = _Entry(owner, size_bytes, since_ms)
        self._of_owner.setdefault(owner, {})[key] = None
        self._owner_bytes[owner] += size_bytes
        self.size_bytes += size_bytes

    def discard(self, key: str) -> None:
        """Remove a key, if it is there."""
        entry = self._entries.pop(key, None)
        if entry is None:
            return
        self.size_bytes -= entry.size_bytes
        self._owner_bytes[entry.owner] -= entry.size_bytes
        del self._of_owner[entry.owner][key]
        if not self._of_owner[entry.owner]:
            del self._of_owner[entry.owner], self._owner_bytes[entry.owner]

    def excess(self, owner: str, bounds: Bounds) -> str | None:
        """The key that has to go next, after one of `owner` was added: the oldest of that owner, or of all."""
        if not self._entries:
            return None
        own, share = self._of_owner.get(owner, {}), bounds.owner_share
        if len(own) > bounds.keys * share or self._owner_bytes[owner] > bounds.size_bytes * share:
            return next(iter(own))
        oldest = next(iter(self._entries))
        too_old = self._entries[oldest].since_ms < self._now_ms - bounds.age_ms
        if too_old or len(self._entries) > bounds.keys or self.size_bytes > bounds.size_bytes:
            return oldest
        return None
