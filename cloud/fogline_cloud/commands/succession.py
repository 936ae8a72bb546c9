"""Which record of a command may follow which, what the next one keeps, and which commands a newer one replaces. Pure."""

from collections.abc import Iterable

from msgspec.structs import replace

from fogline.commands.command import CommandState, may_become
from fogline_cloud.commands.record import CommandRecord, same_verdict, with_request

MAX_NAME = 256


def may_replace(current: CommandRecord, new: CommandRecord) -> bool:
    """Return True if `new` may replace `current`: the next state, the next attempt, or more about the same state.

    More about the same state is: the operator has accepted the reply; the gateway's verdict replaces a provisional one; the
    journal is noted to which the command is sent; or the operator's request is added to a command that was known from its
    gateway's reply alone.
    """
    if new.attempt != current.attempt:
        return new.attempt > current.attempt and current.released
    if new.state is current.state:
        has_request = bool(new.digest) and not current.digest
        is_delivered = new.reply_delivered and not current.reply_delivered and same_verdict(current, new)
        is_sent = new.journals > current.journals and not new.state.terminal
        return is_delivered or has_request or is_sent or (current.provisional and not new.provisional)
    if current.provisional:
        return new.state.terminal
    return may_become(current.state, new.state)


def is_outdated(current: CommandRecord, record: CommandRecord) -> bool:
    """Return True for a record of an earlier attempt, or from the shard of a gateway that the command was not sent to."""
    if current.attempt != record.attempt:
        return record.attempt < current.attempt
    return bool(current.digest) and current.gateway != record.gateway


def replaced_by(newest: CommandRecord, waiting: Iterable[CommandRecord]) -> list[CommandRecord]:
    """Return the records, as CANCELLING, of the commands at the same gateway that a new command replaces.

    `waiting`: the open commands of its gateway. Those that are being cancelled already are left out.
    """
    if not newest.newest_wins or newest.state is not CommandState.ACCEPTED:
        return []
    return [
        as_cancelled(each, newest.operator, newest.accepted_ms, newest.id)
        for each in waiting
        if (each.device, each.name) == (newest.device, newest.name)
        and each.id != newest.id
        and each.state in (CommandState.PROPOSED, CommandState.ACCEPTED, CommandState.DISPATCHED)
    ]


def as_cancelled(record: CommandRecord, by: str, now_ms: int, newer: str = "") -> CommandRecord:
    """Return the record of a command that its gateway has to cancel, because `by` asks for that, or `newer` replaces it."""
    request = {"cancelled_by": by[:MAX_NAME], "replaced_by": newer, "changed_ms": now_ms}
    return replace(record, state=CommandState.CANCELLING, **request)


def keep_cancellation(current: CommandRecord | None, record: CommandRecord) -> CommandRecord:
    """Return the next record of a command, which is being cancelled if the current one says so.

    A bridge may have decided about the command before it learnt that a newer one replaces it.
    """
    if current is None or not current.cancelling or record.cancelled_by or record.attempt != current.attempt:
        return record
    return replace(record, cancelled_by=current.cancelled_by, replaced_by=current.replaced_by)


def keep_verdict(current: CommandRecord | None, record: CommandRecord) -> CommandRecord:
    """Return the next record of a command. If a reply already ended it, keep that verdict, and add the operator's request.

    The reply came while a bridge that had not known the command sent it again. Its gateway has accepted the copy meanwhile,
    so it is the same command, or the bridge has no answer from the gateway.
    """
    unconfirmed = record.state in (CommandState.ACCEPTED, CommandState.REJECTED)
    if current is None or current.digest or not record.digest or unconfirmed or not current.state.terminal:
        return record
    return with_request(current, record)
