"""The records of all commands of a shard, on its thread, and a copy on the loop. No IO."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from fogline.process.kernel_clock import wall_clock_ms
from fogline_cloud.commands.record import CommandRecord, ReplyAddress
from fogline_cloud.commands.succession import may_replace

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RetentionLimits:
    """The most keys and bytes, and the greatest age. One owner may use `owner_share` of the keys and of the bytes."""

    keys: int
    size_bytes: int
    age_ms: int
    owner_share: float = 1.0


_MIB = 1024 * 1024
_KEEP_MS = 8 * 86_400_000  # longer than any time to live; the records stay on Kafka
ENDED = RetentionLimits(20_000, 32 * _MIB, _KEEP_MS)
"""Finished commands to remember, so that a duplicate of one is recognised."""
OWED = RetentionLimits(20_000, 64 * _MIB, _KEEP_MS, owner_share=0.25)
"""Finished commands whose replies their operators have not accepted."""
MAX_OPEN_A_GATEWAY = 10_000
MAX_OPEN_BYTES_A_GATEWAY = 64 * _MIB
OPEN_SHARE = 0.5
"""The share of a gateway's open commands that one operator may use."""
MAX_OPEN_BYTES = 256 * _MIB
RECORD_BYTES = 1000
"""The bytes of a record without its arguments and its reply, at most."""


@dataclass(frozen=True, slots=True)
class _Entry:
    owner: str
    size_bytes: int
    since_ms: int


class RetainedKeys:
    """A set of keys in insertion order. `excess` names the key to discard next. `size_bytes` is the sum of all keys."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self._entries: dict[str, _Entry] = {}
        self._by_owner: dict[str, dict[str, None]] = {}
        self._owner_bytes: Counter[str] = Counter()
        self._newest_ms = 0

    def add(self, key: str, owner: str, size_bytes: int, since_ms: int, now_ms: int) -> None:
        """Add a key as the newest."""
        self.discard(key)
        # A time in the future comes from a wrong clock; it must not make the other keys too old.
        self._newest_ms = max(self._newest_ms, min(since_ms, now_ms))
        self._entries[key] = _Entry(owner, size_bytes, since_ms)
        self._by_owner.setdefault(owner, {})[key] = None
        self._owner_bytes[owner] += size_bytes
        self.size_bytes += size_bytes

    def discard(self, key: str) -> None:
        """Remove a key, if it is there."""
        entry = self._entries.pop(key, None)
        if entry is None:
            return
        self.size_bytes -= entry.size_bytes
        self._owner_bytes[entry.owner] -= entry.size_bytes
        del self._by_owner[entry.owner][key]
        if not self._by_owner[entry.owner]:
            del self._by_owner[entry.owner], self._owner_bytes[entry.owner]

    def excess(self, owner: str, limits: RetentionLimits) -> str | None:
        """Return the key to discard next, after a key of `owner` was added: the oldest key of that owner, or of all."""
        if not self._entries:
            return None
        own, share = self._by_owner.get(owner, {}), limits.owner_share
        if len(own) > limits.keys * share or self._owner_bytes[owner] > limits.size_bytes * share:
            return next(iter(own))
        oldest = next(iter(self._entries))
        too_old = self._entries[oldest].since_ms < self._newest_ms - limits.age_ms
        if too_old or len(self._entries) > limits.keys or self.size_bytes > limits.size_bytes:
            return oldest
        return None


class Registry:
    """Records of commands, by command id. `forgotten_replies` counts replies discarded before an operator accepted them.

    A command without a verdict is never forgotten; `capacity_error` limits their number instead, with those that are being
    written. A command with a verdict is forgotten when it is too old or there are too many: of the `owed` ones if its reply is
    still due, else of the `ended`.
    """

    def __init__(self) -> None:
        self.forgotten_replies = 0
        self._records: dict[str, CommandRecord] = {}
        self._open: dict[str, dict[str, None]] = {}
        self._owed_to: dict[ReplyAddress, dict[str, None]] = {}
        self._count: Counter[tuple[str, ...]] = Counter()
        self._bytes: Counter[tuple[str, ...]] = Counter()
        self._ended = RetainedKeys()
        self._owed = RetainedKeys()

    def get(self, command_id: str) -> CommandRecord | None:
        """Return the record of a command, if it is known."""
        return self._records.get(command_id)

    def put(self, record: CommandRecord) -> None:
        """Store a record as it is: the caller knows that it is the current one. An open command keeps its place."""
        former = self._records.get(record.id)
        keeps_place = former is not None and not former.final and not record.final and former.gateway == record.gateway
        self._remove(record.id, keep_place=keeps_place)
        self._records[record.id] = record
        if not record.final:
            self._open.setdefault(record.gateway, {})[record.id] = None
        if record.owes_reply:
            self._owed_to.setdefault(record.reply_address, {})[record.id] = None
        if not record.state.terminal:
            self._tally(record, 1)
            return
        kept, limits = (self._owed, OWED) if record.owes_reply else (self._ended, ENDED)
        kept.add(record.id, record.operator, _size(record), record.changed_ms, wall_clock_ms())
        while (forgotten := kept.excess(record.operator, limits)) is not None:
            self.forgotten_replies += record.owes_reply
            self._remove(forgotten)

    def change(self, record: CommandRecord) -> bool:
        """Store a record if it may replace the current one. Return False if it may not."""
        current = self._records.get(record.id)
        if current is not None and not may_replace(current, record):
            return False
        self.put(record)
        return True

    def open_for(self, gateway: str) -> list[CommandRecord]:
        """Return the commands of a gateway that have no final verdict, in the order in which they were put.

        That is the order of their first commit, whatever the clocks of the bridges said.
        """
        return [self._records[each] for each in self._open.get(gateway, ())]

    def owed_to(self, address: ReplyAddress) -> list[CommandRecord]:
        """Return the commands whose replies are still due at an address."""
        return [self._records[each] for each in self._owed_to.get(address, ())]

    def capacity_error(self, record: CommandRecord) -> str | None:
        """Return the limit that one more command would exceed, in words; `None` if there is room."""
        gateway, operator = (record.gateway,), (record.gateway, record.operator)
        for key, share, what in ((gateway, 1.0, "too many"), (operator, OPEN_SHARE, f"too many of {record.operator}")):
            most, most_bytes = MAX_OPEN_A_GATEWAY * share, MAX_OPEN_BYTES_A_GATEWAY * share
            if self._count[key] >= most or self._bytes[key] + _size(record) > most_bytes:
                return f"{what} commands wait already for gateway {record.gateway}"
        if self._bytes[()] + _size(record) > MAX_OPEN_BYTES:
            return f"the commands that wait at this bridge take {MAX_OPEN_BYTES} bytes already"
        return None

    def reserve(self, record: CommandRecord) -> Callable[[], None]:
        """Count a command whose record is being written as an open one. Return the function that ends this."""
        self._tally(record, 1)
        return lambda: self._tally(record, -1)

    def everything(self) -> list[CommandRecord]:
        """Return all records."""
        return list(self._records.values())

    def _remove(self, command_id: str, *, keep_place: bool = False) -> None:
        record = self._records.pop(command_id, None)
        if record is None:
            return
        if not keep_place:
            _discard(self._open, record.gateway, command_id)
        _discard(self._owed_to, record.reply_address, command_id)
        self._ended.discard(command_id)
        self._owed.discard(command_id)
        if not record.state.terminal:
            self._tally(record, -1)

    def _tally(self, record: CommandRecord, sign: int) -> None:
        for key in ((), (record.gateway,), (record.gateway, record.operator)):
            self._count[key] += sign
            self._bytes[key] += sign * _size(record)
            if not self._count[key]:
                del self._count[key], self._bytes[key]


def _size(record: CommandRecord) -> int:
    return RECORD_BYTES + len(record.data_base64) + len(record.reply_base64)


def _discard(index: dict[T, dict[str, None]], key: T, command_id: str) -> None:
    if command_id in (found := index.get(key, {})):
        del found[command_id]
        if not found:
            del index[key]
