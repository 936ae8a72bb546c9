"""Newest wins: the commands that a newer one of the same device and name replaces. Pure."""

import msgspec

from fogline.command import CommandState
from fogline_cloud.commands.record import CommandRecord
from fogline_cloud.commands.registry import Registry

MAX_NAME = 256


def replaced_by(newest: CommandRecord, registry: Registry) -> list[CommandRecord]:
    """Return the records, as CANCELLING, of the commands at the same gateway that a new command replaces.

    `registry` has the commands that were accepted before. Those that are being cancelled already are left out.
    """
    if not newest.newest_wins:
        return []
    return [
        as_replaced(each, newest.id, newest.operator, newest.accepted_ms)
        for each in registry.open_for(newest.gateway)
        if (each.device, each.name) == (newest.device, newest.name)
        and each.id != newest.id
        and each.state in (CommandState.ACCEPTED, CommandState.DISPATCHED)
    ]


def as_replaced(record: CommandRecord, newer: str, by: str, now_ms: int) -> CommandRecord:
    """Return the record of a command that its gateway has to cancel, because `newer` replaces it. `by` asked for that."""
    return msgspec.structs.replace(
        record, state=CommandState.CANCELLING, replaced_by=newer, cancelled_by=by[:MAX_NAME], changed_ms=now_ms
    )


def keep_cancellation(current: CommandRecord | None, record: CommandRecord) -> CommandRecord:
    """Return the next record of a command, which is being cancelled if the current one says so.

    A bridge may have decided about the command before it learnt that a newer one replaces it.
    """
    if current is None or not current.cancelling or record.cancelled_by or record.attempt != current.attempt:
        return record
    return msgspec.structs.replace(record, cancelled_by=current.cancelled_by, replaced_by=current.replaced_by)
