"""The journal: the gateway's durable record of commands and their states, in the outbox's file.

Its functions run on the writer's thread. One transaction writes the end of a command and the event on lane `reply` about it.
"""

import hashlib
import sqlite3
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from fogline.commands.cancel import CancelRequest
from fogline.commands.command import Command, CommandState, Deadline, Reply, digest, may_become
from fogline.events.event import Arrival, CommandOutcome, Lane, Receipt
from fogline.events.identity import UniqueId
from fogline.process.crash_points import CrashPoint, crash_point
from fogline_edge.downlink.command_task import cancelled
from fogline_edge.machine.boot import moment
from fogline_edge.outbox.file.queries import SQL
from fogline_edge.outbox.rows.command_rows import insert_command
from fogline_edge.outbox.rows.group import Group
from fogline_edge.outbox.writer.ingest import Ingest, Waiting

NO_CONTENT_TYPE = "application/octet-stream"
"""Content type of an event on lane `reply` whose answer has none."""
_UNANSWERABLE = (CommandState.QUEUED, CommandState.EXPIRED, CommandState.CANCELLED, CommandState.REJECTED)


class JournalResult(StrEnum):
    """The journal's result for a command."""

    NEW = "new"
    KNOWN = "known"
    CONFLICT = "conflict"
    REFUSED = "refused"


class JournalEntry(NamedTuple):
    """A command in the journal and its state."""

    command: Command
    state: CommandState


def store(ingest: Ingest, group: Group, command: Command, first: CommandState | None) -> JournalResult:
    """Insert a command in state `first`, unless the journal has it. `first=None`: look for it only."""
    content = digest(command)
    found = find(ingest, group, command.id, content)
    if found is not JournalResult.REFUSED or first is None:
        return found
    insert_command(ingest.connection, command, content, first, group.age_s)
    if first is CommandState.SENDING:
        crash_point(CrashPoint.BEFORE_SENDING_COMMIT)
    return JournalResult.NEW


def cancel(ingest: Ingest, group: Group, request: CancelRequest) -> CommandState | None:
    """Cancel a command that its device has not seen, and report that on lane `reply`. Returns its state; `None`: a conflict.

    A command that is not here is stored as cancelled, so that a copy that comes later is not run.
    """
    found = find(ingest, group, request.id, request.digest)
    if found is JournalResult.CONFLICT:
        return None
    if found is JournalResult.REFUSED:
        insert_command(ingest.connection, request.command, request.digest, CommandState.QUEUED, group.age_s)
    state = _state(ingest, request.id)
    if state is CommandState.QUEUED:
        state = CommandState.CANCELLED
        finish(ingest, group, request.command, state, cancelled(request.why))
        crash_point(CrashPoint.BEFORE_CANCEL_COMMIT)
    return state


def find(ingest: Ingest, group: Group, command_id: str, content: bytes) -> JournalResult:  # noqa: ARG001 - the signature of an act
    """Return `KNOWN` if the journal has the command, `CONFLICT` if it has another of that id, `REFUSED` if it has none."""
    row = ingest.connection.execute(SQL["command_digest"], (command_id,)).fetchone()
    if row is None:
        return JournalResult.REFUSED
    return JournalResult.KNOWN if row[0] == content else JournalResult.CONFLICT


def set_state(ingest: Ingest, group: Group, command_id: str, state: CommandState) -> bool:  # noqa: ARG001 - the signature of an act
    """Set a state that is not terminal. Returns False if the command may not change to it, and has it not."""
    now = _state(ingest, command_id)
    if now is state:
        return True
    if now is None or not may_become(now, state):
        return False
    ingest.connection.execute(SQL["set_command_state"], (state.value, command_id))
    if state is CommandState.SENDING:
        crash_point(CrashPoint.BEFORE_SENDING_COMMIT)
    return True


def finish(ingest: Ingest, group: Group, command: Command, state: CommandState, reply: Reply) -> bool:
    """End a command, and report its end on lane `reply`. Returns False if the command is over already."""
    now = _state(ingest, command.id)
    if now is None or not may_become(now, state):
        return False
    values = (state.value, reply.status, _reply_digest(reply), group.age_s, command.id)
    ingest.connection.execute(SQL["finish_command"], values)
    ingest.take(group, Waiting(reply_event(command, state, reply), moment(ingest.clock), lambda _: None))
    return True


def store_answer(
    ingest: Ingest, group: Group, device: str, command_id: str, reply: Reply
) -> tuple[Receipt, CommandState | None]:
    """End the command that a device has answered. Returns the command's new state, `None` if it did not change.

    `DUPLICATE`: the journal has this answer. `DEAD`: no command awaits it, and the caller has to store it.
    """
    row = ingest.connection.execute(SQL["one_command"], (command_id,)).fetchone()
    if row is None:
        return Receipt.DEAD, None
    command, state = _entry(row[:-1], ingest.identity)
    if command.device == device and state in (CommandState.SUCCEEDED, CommandState.FAILED):
        return (Receipt.DUPLICATE if row[-1] == _reply_digest(reply) else Receipt.DEAD), None
    if command.device != device or state in _UNANSWERABLE:
        return Receipt.DEAD, None
    finish(ingest, group, command, reply.state, reply)
    return Receipt.STORED, reply.state


def open_entries(connection: sqlite3.Connection, identity: tuple[str, str]) -> list[JournalEntry]:
    """Return every open command, in order of arrival."""
    return [_entry(row[:-1], identity) for row in connection.execute(SQL["open_commands"]).fetchall()]


def reply_event(command: Command, state: CommandState, reply: Reply) -> Arrival:
    """Return the event that reports the end of a command, with the device's answer. Its id is the command's and the state."""
    return Arrival(
        device=command.device,
        channel=f"command/{command.name}",
        lane=Lane.REPLY,
        content_type=reply.content_type or NO_CONTENT_TYPE,
        data=reply.data,
        adapter="fogline",
        type="reply",
        evidence=UniqueId(f"{command.id}/{state}".encode()),
        outcome=CommandOutcome(command=command.id, state=state.value, status=reply.status, correlation=command.correlation),
    )


def _state(ingest: Ingest, command_id: str) -> CommandState | None:
    row = ingest.connection.execute(SQL["command_state"], (command_id,)).fetchone()
    return CommandState(row[0]) if row else None


def _reply_digest(reply: Reply) -> bytes:
    kind = reply.content_type or ""
    return hashlib.blake2b(b"%d\0%s\0" % (reply.status, kind.encode()) + reply.data, digest_size=16).digest()


def _entry(row: Sequence[object], identity: tuple[str, str]) -> JournalEntry:
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
    return JournalEntry(command, CommandState(str(state)))
