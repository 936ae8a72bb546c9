"""What the next record of a command keeps of the current one, and which commands a newer one replaces. Pure."""

import msgspec

from fogline.command import CommandState
from fogline_cloud.commands.record import CommandRecord, with_request
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


def keep_verdict(current: CommandRecord | None, record: CommandRecord) -> CommandRecord:
    """Return the next record of a command, which has the current one's verdict if that is known from a reply alone.

    The reply came while a bridge that had not known the command sent it again. Its gateway has accepted the copy meanwhile,
    so it is the same command, or the bridge has no answer from the gateway.
    """
    unconfirmed = record.state in (CommandState.ACCEPTED, CommandState.REJECTED)
    if current is None or current.digest or not record.digest or unconfirmed or not current.state.terminal:
        return record
    return with_request(current, record)
