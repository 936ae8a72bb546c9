"""All commands of one shard, and which state may follow which. Pure; a shard's thread owns one, the loop has a copy."""

from fogline.command import may_become
from fogline_cloud.commands.record import Record

MAX_ENDED = 20_000
"""How many commands that are over are remembered, so that a copy that comes again is known."""


class Registry:
    """Commands by id."""

    def __init__(self) -> None:
        self._records: dict[str, Record] = {}
        self._ended: dict[str, None] = {}

    def get(self, command_id: str) -> Record | None:
        """A command, if it is known."""
        return self._records.get(command_id)

    def put(self, record: Record) -> None:
        """A record as it is (from Kafka, or from the owner of the truth)."""
        self._records[record.id] = record
        if record.over and not record.owes_answer:
            self._ended[record.id] = None
            if len(self._ended) > MAX_ENDED:
                forgotten = next(iter(self._ended))
                del self._ended[forgotten], self._records[forgotten]
        else:  # a new attempt
            self._ended.pop(record.id, None)

    def change(self, record: Record) -> bool:
        """Take a record that follows from another, if it may follow from what is known now."""
        now = self._records.get(record.id)
        if now is not None and not follows(now, record):
            return False
        self.put(record)
        return True

    def open_for(self, gateway: str) -> list[Record]:
        """The commands that a gateway has not decided yet, oldest first."""
        found = [each for each in self._records.values() if each.gateway == gateway and not each.over]
        return sorted(found, key=lambda each: each.accepted_ms)

    def everything(self) -> list[Record]:
        """All that is known."""
        return list(self._records.values())


def follows(now: Record, then: Record) -> bool:
    """Whether `then` may replace `now`: the next state or attempt, or the same end with something new about it.

    That is: the operator told, the gateway's word in place of a provisional one, or the operator's side of a command
    that only its gateway's reply spoke of.
    """
    if then.attempt != now.attempt:
        return then.attempt > now.attempt and now.released
    if then.state is now.state:
        named = bool(then.digest) and not now.digest
        return (then.told and not now.told) or (now.provisional and not then.provisional) or named
    if now.provisional:
        return then.state.terminal
    return may_become(now.state, then.state)


def outdated(known: Record, record: Record) -> bool:
    """Return True for a record of an earlier attempt, or of another gateway: its shard does not know whose it is."""
    if known.attempt != record.attempt:
        return record.attempt < known.attempt
    return bool(known.digest) and known.gateway != record.gateway
