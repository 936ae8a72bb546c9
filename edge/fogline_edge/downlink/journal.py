"""The journal: the gateway's durable record of commands and their states, in the outbox's file.

These functions run on the writer's thread, inside the transaction of a group (`Outbox.act`). A command's end and the
event on lane `reply` that tells of it are one transaction.
"""

import hashlib
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from fogline.command import Answer, Command, Deadline, State, Status, digest, may_become
from fogline.crash import CrashPoint, crash_point
from fogline.event import Arrival, Lane, Outcome, Receipt
from fogline.identity import UniqueId
from fogline_edge.boot import moment
from fogline_edge.outbox.ingest import Group, Ingest, Waiting
from fogline_edge.outbox.queries import SQL

NO_CONTENT_TYPE = "application/octet-stream"
"""What an empty or unnamed answer is called on the reply lane."""


class Stored(StrEnum):
    """What became of a command that came in."""

    NEW = "new"
    KNOWN = "known"
    CONFLICT = "conflict"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Entry:
    """A command in the journal and where it is."""

    command: Command
    state: State


def store(ingest: Ingest, group: Group, command: Command, first: State | None) -> Stored:
    """Write a command down in state `first`, unless it is there. `first=None`: it is only looked for."""
    content = digest(command)
    found = find(ingest, group, command.id, content)
    if found is not Stored.REFUSED or first is None:
        return found
    values = (
        command.id,
        command.device,
        command.name,
        command.content_type,
        command.data,
        command.reply,
        command.durable,
        command.idempotent,
        command.correlation,
        command.deadline.boot_id,
        command.deadline.boottime_ms,
        content,
        first.value,
        group.age_s,
    )
    ingest.connection.execute(SQL["insert_command"], values)
    if first is State.SENDING:
        crash_point(CrashPoint.BEFORE_SENDING_COMMIT)
    return Stored.NEW


def find(ingest: Ingest, group: Group, command_id: str, content: bytes) -> Stored:  # noqa: ARG001 - the signature of an act
    """Return `KNOWN` if the journal has the command, `CONFLICT` if it has another of that id, `REFUSED` if it has none."""
    row = ingest.connection.execute(SQL["command_digest"], (command_id,)).fetchone()
    if row is None:
        return Stored.REFUSED
    return Stored.KNOWN if row[0] == content else Stored.CONFLICT


def become(ingest: Ingest, group: Group, command_id: str, state: State) -> bool:  # noqa: ARG001 - the signature of an act
    """Move a command to a state that is not terminal; `False` if it may not go there."""
    now = _state(ingest, command_id)
    if now is None or not may_become(now, state):
        return False
    ingest.connection.execute(SQL["set_command_state"], (state.value, command_id))
    if state is State.SENDING:
        crash_point(CrashPoint.BEFORE_SENDING_COMMIT)
    return True


def finish(ingest: Ingest, group: Group, command: Command, state: State, answer: Answer) -> bool:
    """End a command, and tell of it on the reply lane; `False` if it may not end so (it is over)."""
    now = _state(ingest, command.id)
    if now is None or not may_become(now, state):
        return False
    values = (state.value, answer.status, _answer_digest(answer), group.age_s, command.id)
    ingest.connection.execute(SQL["finish_command"], values)
    ingest.take(group, Waiting(reply(command, state, answer), moment(ingest.clock), _nobody))
    return True


def answered(ingest: Ingest, group: Group, device: str, command_id: str, answer: Answer) -> tuple[Receipt, State | None]:
    """A device's answer: ends its command, or is one that was there, or belongs to none (`DEAD`: the caller keeps it).

    The state is the one that the command has become, `None` if nothing changed.
    """
    row = ingest.connection.execute(SQL["one_command"], (command_id,)).fetchone()
    entry = _entry(row[:-1], ingest.identity) if row else None
    if entry is None or entry.command.device != device or entry.state in (State.EXPIRED, State.CANCELLED, State.REJECTED):
        return Receipt.DEAD, None
    if entry.state in (State.SUCCEEDED, State.FAILED):
        return (Receipt.DUPLICATE if row[-1] == _answer_digest(answer) else Receipt.DEAD), None
    if entry.state is State.QUEUED:
        return Receipt.DEAD, None
    finish(ingest, group, entry.command, answer.state, answer)
    return Receipt.STORED, answer.state


def open_entries(connection: sqlite3.Connection, identity: tuple[str, str]) -> list[Entry]:
    """Every command that is not over, in the order in which they came."""
    return [_entry(row[:-1], identity) for row in connection.execute(SQL["open_commands"]).fetchall()]


def reply(command: Command, state: State, answer: Answer) -> Arrival:
    """The event that tells of a command's end: the device's own words, or none. Its id is the command's and the state."""
    return Arrival(
        device=command.device,
        channel=f"command/{command.name}",
        lane=Lane.REPLY,
        content_type=answer.content_type or NO_CONTENT_TYPE,
        data=answer.data,
        adapter="fogline",
        type="reply",
        evidence=UniqueId(f"{command.id}/{state}".encode()),
        outcome=Outcome(command=command.id, state=state.value, status=answer.status, correlation=command.correlation),
    )


def nothing(status: Status) -> Answer:
    """The answer of a command that has none."""
    return Answer(int(status))


def _nobody(receipt: Receipt) -> None:
    """The caller of the act is told, not the arrival within it."""


def _state(ingest: Ingest, command_id: str) -> State | None:
    row = ingest.connection.execute(SQL["command_state"], (command_id,)).fetchone()
    return State(row[0]) if row else None


def _answer_digest(answer: Answer) -> bytes:
    kind = answer.content_type or ""
    return hashlib.blake2b(b"%d\0%s\0" % (answer.status, kind.encode()) + answer.data, digest_size=16).digest()


def _entry(row: Sequence[object], identity: tuple[str, str]) -> Entry:
    command_id, device, name, content_type, data, reply_, durable, idempotent, correlation, boot, deadline, state = row
    tenant, gateway = identity
    command = Command(
        id=str(command_id),
        tenant=tenant,
        gateway=gateway,
        device=str(device),
        name=str(name),
        content_type=str(content_type) if content_type is not None else None,
        data=bytes(data),  # type: ignore[call-overload]
        reply=bool(reply_),
        durable=bool(durable),
        idempotent=bool(idempotent),
        correlation=str(correlation),
        deadline=Deadline(str(boot), int(str(deadline))),
    )
    return Entry(command, State(str(state)))
