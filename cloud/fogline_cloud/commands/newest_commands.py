"""The newest commands that a client asks for, chosen from the records of Kafka as they are read, within a bound. Pure."""

from collections.abc import Callable
from operator import attrgetter
from typing import Any

import msgspec

from fogline_cloud.commands.record import CommandRecord

MAX_BYTES = 4 * 1024 * 1024
"""Memory for the commands of one list. At the bound, the older half is left out."""
_ENTRY_BYTES = 600  # what an entry takes beside its body, about
_FACTS = ("id", "device", "gateway", "name", "state", "status", "operator", "accepted_ms", "expires_ms", "changed_ms", "why")


class ListedCommand(msgspec.Struct, frozen=True, gc=False):
    """A command in a list. `body`: its facts, as JSON."""

    accepted_ms: int
    id: str
    device: str
    name: str
    body: bytes


class NewestCommands:
    """Takes every record of the commands in the order of Kafka, of which the newest one of each command counts.

    `wanted` returns True for a record that is asked for. `answers`: the facts include the devices' answers.
    """

    def __init__(self, wanted: Callable[[CommandRecord], bool], *, answers: bool) -> None:
        self._wanted = wanted
        self._answers = answers
        self._held: dict[str, ListedCommand] = {}
        self._bytes = 0
        self._left_out = 0
        self._left_out_up_to = (-1, "")  # the newest one that was left out: older ones are not taken any more

    def take(self, record: CommandRecord) -> None:
        """Take a record. It replaces an earlier one of its command, also if only that one is asked for."""
        if (former := self._held.pop(record.id, None)) is not None:
            self._bytes -= _size(former)
        if (record.accepted_ms, record.id) <= self._left_out_up_to or not self._wanted(record):
            return
        body = msgspec.json.encode(facts_of(record, answer=self._answers))
        listed = self._held[record.id] = ListedCommand(record.accepted_ms, record.id, record.device, record.name, body)
        self._bytes += _size(listed)
        if self._bytes > MAX_BYTES:
            self._leave_out()

    def newest(self, limit: int) -> tuple[list[ListedCommand], int]:
        """Return at most `limit` commands, the newest first, and the number of the others, at least."""
        ordered = self._ordered()
        return ordered[:limit], max(0, len(ordered) - limit) + self._left_out

    def _ordered(self) -> list[ListedCommand]:
        return sorted(self._held.values(), key=attrgetter("accepted_ms", "id"), reverse=True)

    def _leave_out(self) -> None:
        kept: dict[str, ListedCommand] = {}
        size_bytes = 0
        for each in self._ordered():
            if size_bytes + _size(each) > MAX_BYTES // 2:
                self._left_out_up_to = each.accepted_ms, each.id
                break
            kept[each.id] = each
            size_bytes += _size(each)
        self._left_out += len(self._held) - len(kept)
        self._held, self._bytes = kept, size_bytes


def facts_of(record: CommandRecord, *, answer: bool) -> dict[str, Any]:
    """Return what a client is told of a command, as JSON. `answer`: with the device's answer."""
    facts = {name: getattr(record, name) for name in _FACTS}
    facts["state"] = f"{record.state} (provisional)" if record.provisional else record.state.value
    if answer:
        facts |= {"answer_type": record.reply_type, "answer_base64": record.reply_base64}
    return facts


def _size(listed: ListedCommand) -> int:
    return len(listed.body) + _ENTRY_BYTES
