"""All commands of one shard, and which state may follow which. No IO; a shard's thread owns one, the loop has a copy."""

import time
from collections import Counter

from fogline.command import may_become
from fogline_cloud.commands.record import Record, same_verdict
from fogline_cloud.commands.remembered import Bounds, Remembered

_MIB = 1024 * 1024
MAX_ENDED = 20_000
"""How many commands that are over are remembered, so that a copy that comes again is known."""
MAX_ENDED_BYTES = 32 * _MIB
MAX_OWED = 20_000
"""How many answers are kept that their operators have not taken."""
MAX_OWED_BYTES = 64 * _MIB
OWED_SHARE = 0.25
"""Of these, the most for one operator."""
KEEP_MS = 8 * 86_400_000
"""How long either is kept: longer than any command may live. Its record stays on Kafka."""
MAX_OPEN_A_GATEWAY = 10_000
MAX_OPEN_BYTES_A_GATEWAY = 64 * _MIB
OPEN_SHARE = 0.5
"""Of the commands that may be open for a gateway, the most of one operator."""
MAX_OPEN_BYTES = 256 * _MIB
RECORD_BYTES = 1000
"""The bytes that a record takes beside its arguments and its answer, or less."""


class Registry:
    """Commands by id. `unfetched`: how many answers were forgotten before their operators took them.

    A command without a verdict is never forgotten; `no_room` says when one more would be too many. One with a verdict is
    forgotten when there are too many of its kind or it is too old: `owed` if its operator has not taken the answer, else
    `ended`.
    """

    def __init__(self) -> None:
        self.unfetched = 0
        self._records: dict[str, Record] = {}
        self._open: dict[str, dict[str, None]] = {}
        self._owed_to: dict[str, dict[str, None]] = {}
        self._count: Counter[tuple[str, ...]] = Counter()
        self._bytes: Counter[tuple[str, ...]] = Counter()
        self._ended = Remembered()
        self._owed = Remembered()

    def get(self, command_id: str) -> Record | None:
        """A command, if it is known."""
        return self._records.get(command_id)

    def put(self, record: Record) -> None:
        """A record as it is (from Kafka, or from the owner of the truth)."""
        self._remove(record.id)
        self._records[record.id] = record
        if not record.over:
            self._open.setdefault(record.gateway, {})[record.id] = None
        if record.owes_answer:
            self._owed_to.setdefault(record.reply_to, {})[record.id] = None
        if not record.state.terminal:
            self._tally(record, 1)
            return
        kept = self._owed if record.owes_answer else self._ended
        kept.add(record.id, record.operator, _size(record), record.changed_ms, time.time_ns() // 1_000_000)
        ended, owed = Bounds(MAX_ENDED, MAX_ENDED_BYTES, KEEP_MS), Bounds(MAX_OWED, MAX_OWED_BYTES, KEEP_MS, OWED_SHARE)
        while (forgotten := kept.excess(record.operator, owed if record.owes_answer else ended)) is not None:
            self.unfetched += record.owes_answer
            self._remove(forgotten)

    def change(self, record: Record) -> bool:
        """Take a record that follows from another, if it may follow from what is known now."""
        now = self._records.get(record.id)
        if now is not None and not follows(now, record):
            return False
        self.put(record)
        return True

    def open_for(self, gateway: str) -> list[Record]:
        """The commands that a gateway has not decided yet, oldest first."""
        found = [self._records[each] for each in self._open.get(gateway, ())]
        return sorted(found, key=lambda each: each.accepted_ms)

    def owed_to(self, reply_id: str) -> list[Record]:
        """The commands whose answers are still to be taken at a reply id."""
        return [self._records[each] for each in self._owed_to.get(reply_id, ())]

    def no_room(self, record: Record) -> str | None:
        """Why one more command would be too much; `None` if there is room for it."""
        gateway, operator = (record.gateway,), (record.gateway, record.operator)
        for key, share, what in ((gateway, 1.0, "too many"), (operator, OPEN_SHARE, f"too many of {record.operator}")):
            most, most_bytes = MAX_OPEN_A_GATEWAY * share, MAX_OPEN_BYTES_A_GATEWAY * share
            if self._count[key] >= most or self._bytes[key] + _size(record) > most_bytes:
                return f"{what} commands wait already for gateway {record.gateway}"
        if self._bytes[()] + _size(record) > MAX_OPEN_BYTES:
            return f"the commands that wait at this bridge take {MAX_OPEN_BYTES} bytes already"
        return None

    def everything(self) -> list[Record]:
        """All that is known."""
        return list(self._records.values())

    def _remove(self, command_id: str) -> None:
        record = self._records.pop(command_id, None)
        if record is None:
            return
        _discard(self._open, record.gateway, command_id)
        _discard(self._owed_to, record.reply_to, command_id)
        self._ended.discard(command_id)
        self._owed.discard(command_id)
        if not record.state.terminal:
            self._tally(record, -1)

    def _tally(self, record: Record, sign: int) -> None:
        """Count a command without a verdict: of all, of its gateway, and of its operator at that gateway."""
        for key in ((), (record.gateway,), (record.gateway, record.operator)):
            self._count[key] += sign
            self._bytes[key] += sign * _size(record)
            if not self._count[key]:
                del self._count[key], self._bytes[key]


def follows(now: Record, then: Record) -> bool:
    """Whether `then` may replace `now`: the next state or attempt, or the same end with something new about it.

    That is: the operator told, the gateway's word in place of a provisional one, or the operator's side of a command
    that only its gateway's reply spoke of.
    """
    if then.attempt != now.attempt:
        return then.attempt > now.attempt and now.released
    if then.state is now.state:
        named = bool(then.digest) and not now.digest
        told = then.told and not now.told and same_verdict(now, then)
        return told or named or (now.provisional and not then.provisional)
    if now.provisional:
        return then.state.terminal
    return may_become(now.state, then.state)


def _size(record: Record) -> int:
    return RECORD_BYTES + len(record.data_base64) + len(record.answer_base64)


def _discard(index: dict[str, dict[str, None]], key: str, command_id: str) -> None:
    if command_id in (found := index.get(key, {})):
        del found[command_id]
        if not found:
            del index[key]


def outdated(known: Record, record: Record) -> bool:
    """Return True for a record of an earlier attempt, or of another gateway: its shard does not know whose it is."""
    if known.attempt != record.attempt:
        return record.attempt < known.attempt
    return bool(known.digest) and known.gateway != record.gateway
