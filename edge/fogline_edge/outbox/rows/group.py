"""The rows that one transaction writes."""

import os
from dataclasses import dataclass, field

from fogline.events.codec import Beacon
from fogline_edge.outbox.rows.memory_entry import MemoryEntry
from fogline_edge.outbox.rows.streams import COMMIT_ID_BYTES, Stream


@dataclass(slots=True)
class Group:
    """The rows of a transaction, collected first and inserted together.

    `age_ms`, `age_s`: the gateway's age (see `age`). `commit_id`: random bytes that no other commit has; `tag`, its first half,
    goes into the ids of events without an identity of their own. `unsynced`: by stream and beacon, the first and the last
    sequence that came while the wall clock was not set.
    """

    age_ms: int
    age_s: int = field(init=False)
    memory: dict[bytes, tuple[str, MemoryEntry]] = field(default_factory=dict)
    touched: dict[str, Stream] = field(default_factory=dict)
    incarnations: int = 0
    unsynced: dict[tuple[int, Beacon], tuple[int, int]] = field(default_factory=dict)
    commit_id: bytes = field(default_factory=lambda: os.urandom(COMMIT_ID_BYTES))
    tag: str = ""

    def __post_init__(self) -> None:
        self.age_s = self.age_ms // 1000
        self.tag = self.commit_id[:4].hex()

    def note_unsynced(self, stream: Stream, beacon: Beacon) -> None:
        """Note that the stream's newest event came at `beacon` and that its wall-clock time needs correction."""
        key = stream.number, beacon
        first, _ = self.unsynced.get(key, (stream.head, 0))
        self.unsynced[key] = first, stream.head

    def incarnation(self) -> int:
        """Return 63 random bits, different for each event of the group."""
        self.incarnations += 1
        return (int.from_bytes(self.commit_id, "big") + self.incarnations) & ((1 << 63) - 1)
