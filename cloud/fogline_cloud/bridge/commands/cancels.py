"""Cancels commands: at this bridge if no bridge can have sent the command, else at its gateway.

A command that may have left the bridge becomes CANCELLING, and that is committed before its gateway is asked. From then on
the command is not sent again, and the gateway's journal decides: at once, or when the gateway is back. The end of the command
is the verdict for everyone who asks: CANCELLED, or the state that it has.

A command that a newer one replaces (newest wins) is cancelled in the same way; only its reason is another.
"""

from functools import partial

import msgspec

from fogline.address import CommandAddress, shown
from fogline.amqp.outcome import ACCEPTED, MODIFIED, RELEASED, Outcome, rejected
from fogline.cancel import TOO_LATE
from fogline.command import CommandState, Reply, Status
from fogline.errors import Poison
from fogline.process.crash_points import CrashPoint, crash_point
from fogline_cloud.access.policy import Action, Policy
from fogline_cloud.access.principal import Principal
from fogline_cloud.bridge.commands.command_sender import CommandSender
from fogline_cloud.bridge.commands.command_table import CommandTable
from fogline_cloud.bridge.commands.verdict_waiters import Decided
from fogline_cloud.bridge.group.shard_table import ShardTable
from fogline_cloud.commands.record import CommandRecord, ended, why_cancelled
from fogline_cloud.commands.replacement import MAX_NAME, as_replaced

WAIT_S = 10.0
"""Time that an AMQP client waits for the verdict. Then it has to ask again."""


class Cancels:
    """Requests to cancel, of all commands of this bridge. All methods run on the loop."""

    def __init__(self, shards: ShardTable, table: CommandTable, sender: CommandSender, policy: Policy) -> None:
        self._shards = shards
        self._table = table
        self._sender = sender
        self._policy = policy

    def cancel(self, command_id: str, by: Principal, done: Decided, wait_s: float = WAIT_S) -> None:
        """Cancel a command. `done` is called once, now or within `wait_s`, with its record.

        A terminal state is the verdict: CANCELLED, or too late (a provisional one only if `cancelled_by` is empty). With any
        other state the command is not over yet. `None`: the command is not here at present; ask again.

        Raises `Poison`: `unknown-command`, or `not-authorised` for a client that may not send this command.
        """
        record = self._table.registry.get(command_id)
        if record is None:
            if self._shards.all_ready:
                raise Poison("unknown-command", unknown_command(command_id))
            done(None)
            return
        address = CommandAddress(record.tenant, record.device)
        if not self._policy.may(by, Action.SEND, address, record.name):
            raise Poison("not-authorised", f"{by} may not cancel command {shown(record.name)} to {record.device}")
        if self._shards.ready(self._shards.number_of(record.gateway)) is None:
            done(None)
            return
        command = self._table.open.get(command_id)
        if command is None:
            done(record)
            return
        self._table.waiters.add(command_id, done, wait_s)
        if not command.ending and not command.cancelling:
            command.cancelling = True
            asked = msgspec.structs.replace(
                record, state=CommandState.CANCELLING, cancelled_by=str(by)[:MAX_NAME], changed_ms=self._table.now_ms()
            )
            self._begin(record, asked, sent=command.maybe_sent)

    def supersede(self, record: CommandRecord, newer: str, by: str) -> None:
        """Cancel a command of the bridge's own, because `newer` replaces it. Its record tells the end."""
        command = self._table.open.get(record.id)
        if command is not None and not command.ending and not command.cancelling:
            command.cancelling = True
            self._begin(record, as_replaced(record, newer, by, self._table.now_ms()), sent=command.maybe_sent)

    def replaced(self, record: CommandRecord) -> None:
        """Go on with a command that a newer one replaces, as its shard has committed: end it here, or ask its gateway."""
        command = self._table.open.get(record.id)
        is_here = command is not None and not command.maybe_sent
        self._table.take_over(record)
        known, command = self._table.registry.get(record.id), self._table.open.get(record.id)
        if known is None or command is None or not known.cancelling or command.ending:
            return  # it is over, or about to be: a verdict of this bridge follows
        command.cancelling = True
        if is_here:
            self._table.end(known, CommandState.CANCELLED, Status.CANCELLED, why_cancelled(known))
        else:
            self._sender.cancel(known)

    def _begin(self, record: CommandRecord, asked: CommandRecord, *, sent: bool) -> None:
        now_ms = asked.changed_ms
        if not sent and record.state is CommandState.ACCEPTED:
            why = why_cancelled(asked)
            asked = ended(asked, CommandState.CANCELLED, Reply(Status.CANCELLED, why.encode(), "text/plain"), now_ms, why=why)
        crash_point(CrashPoint.BEFORE_CANCELLING_COMMIT)
        self._table.write(asked, self._on_committed, partial(self._on_unknown, record.id))

    def _on_committed(self, current: CommandRecord) -> None:
        self._table.take_over(current)
        known, command = self._table.registry.get(current.id), self._table.open.get(current.id)
        if known is not None and command is not None:
            command.cancelling = known.cancelling
            if known.cancelling:
                self._sender.cancel(known)

    def _on_unknown(self, command_id: str) -> None:
        """Answer that nothing is known. Nothing is sent before the shard is taken again and has said what was committed."""
        if (command := self._table.open.get(command_id)) is not None:
            command.cancelling = False
        self._table.waiters.tell(command_id, None)


def unknown_command(command_id: str) -> str:
    """Return why a request to cancel an unknown command is refused."""
    return f"command {shown(command_id)} is not known here"


def outcome_of(record: CommandRecord | None) -> Outcome:
    """Return the outcome of a request to cancel."""
    if record is None:
        return RELEASED
    if record.state is CommandState.CANCELLED:
        return ACCEPTED
    if record.final or (record.provisional and not record.cancelled_by):
        return rejected(TOO_LATE, f"{record.state}: it is too late to cancel command {record.id}")
    return MODIFIED
