"""All commands of the tenant, newest last, as their records on Kafka say; and requests that wait for one. Used on the loop."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import NamedTuple

from msgspec.structs import replace

from fogline.commands.command import CommandState, Reply
from fogline.message import pack_id
from fogline_cloud.commands.client.verdict import CommandVerdict
from fogline_cloud.commands.record import CommandRecord, ended
from fogline_cloud.commands.succession import may_replace

MAX_BYTES = 256 * 1024 * 1024
"""Memory for arguments and replies of all commands. Beyond it the oldest commands are forgotten."""
_RECORD_BYTES = 1500

MAX_STEPS = 16
"""States of one command that are kept: the last ones."""

Request = tuple[str, str]
"""What names a command before its id is known: the operator, and the id of its message, packed."""


class CommandStep(NamedTuple):
    """A state of a command, and when it began: milliseconds since 1970 on the bridge's clock."""

    state: CommandState
    changed_ms: int
    provisional: bool


def request_of(operator: str, message_id: str) -> Request:
    """Return what names the command in a message of an operator."""
    return operator, pack_id(message_id)


class CommandIndex:
    """The newest `most` commands. `on_change` gets each state of each command, once it is up to date."""

    def __init__(self, most: int, on_change: Callable[[CommandRecord], None]) -> None:
        self._most = most
        self._on_change = on_change
        self._records: dict[str, CommandRecord] = {}
        self._ids: dict[Request, str] = {}
        self._steps: dict[str, tuple[CommandStep, ...]] = {}
        self._bytes = 0
        self._waiting: defaultdict[str | Request, set[asyncio.Future[None]]] = defaultdict(set)
        self._stopped = False

    def __len__(self) -> int:
        return len(self._records)

    def get(self, command_id: str) -> CommandRecord | None:
        """Return a command, if it is known."""
        return self._records.get(command_id)

    def steps(self, command_id: str) -> tuple[CommandStep, ...]:
        """Return the states of a command, oldest first, as far as Kafka still had them when this process read it."""
        return self._steps.get(command_id, ())

    def find(self, request: Request) -> CommandRecord | None:
        """Return the command of a message, if it is known."""
        command_id = self._ids.get(request)
        return self._records.get(command_id) if command_id is not None else None

    def newest_first(self) -> Iterator[CommandRecord]:
        """Yield all commands, the newest first."""
        return reversed(self._records.values())

    def put(self, record: CommandRecord) -> None:
        """Take a record: of Kafka, or one that follows from a reply."""
        known = self._records.get(record.id)
        if known is not None and not may_replace(known, record):
            return
        self._bytes += _size(record) - (_size(known) if known is not None else 0)
        self._records[record.id] = record
        step = CommandStep(record.state, record.changed_ms, record.provisional)
        if step not in (steps := self._steps.get(record.id, ())):
            self._steps[record.id] = (*steps, step)[-MAX_STEPS:]
        request = record.operator, record.correlation
        self._ids[request] = record.id
        while len(self._records) > self._most or self._bytes > MAX_BYTES:
            self._forget(next(iter(self._records)))
        self._on_change(record)
        self._wake(record.id)
        self._wake(request)

    def take_verdict(self, request: Request, draft: CommandRecord | None, verdict: CommandVerdict) -> None:
        """Take a reply, which comes before the record. `draft`: the command as it was sent, if it was sent from here."""
        known = self._records.get(verdict.command_id)
        if known is not None:
            self.put(with_verdict(known, verdict))
        elif draft is not None:
            self.put(with_verdict(replace(draft, id=verdict.command_id), verdict))
        self._wake(request)

    def sort(self) -> None:
        """Put the commands in the order in which they were accepted, after the records of all shards were read."""
        self._records = dict(sorted(self._records.items(), key=lambda each: each[1].accepted_ms))

    async def change(self, key: str | Request, limit_s: float) -> None:
        """Wait until the command with this id, or of this message, has changed, but no longer than `limit_s`."""
        if self._stopped:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[key].add(future)
        try:
            await asyncio.wait([future], timeout=limit_s)
        finally:
            self._waiting[key].discard(future)
            if not self._waiting[key]:
                del self._waiting[key]

    @property
    def waiting(self) -> int:
        """Number of requests that wait."""
        return sum(map(len, self._waiting.values()))

    def stop(self) -> None:
        """End all waits."""
        self._stopped = True
        for key in list(self._waiting):
            self._wake(key)

    def _wake(self, key: str | Request) -> None:
        for future in self._waiting.get(key, ()):
            if not future.done():
                future.set_result(None)

    def _forget(self, command_id: str) -> None:
        record = self._records.pop(command_id)
        self._bytes -= _size(record)
        del self._steps[command_id]
        if self._ids.get((record.operator, record.correlation)) == command_id:
            del self._ids[record.operator, record.correlation]


def with_verdict(record: CommandRecord, verdict: CommandVerdict) -> CommandRecord:
    """Return the record of a command with the verdict in a reply."""
    reply = Reply(verdict.status, verdict.data, verdict.content_type)
    return ended(record, verdict.state, reply, record.changed_ms, why=verdict.why, provisional=verdict.provisional)


def _size(record: CommandRecord) -> int:
    return _RECORD_BYTES + len(record.data_base64) + len(record.reply_base64)
