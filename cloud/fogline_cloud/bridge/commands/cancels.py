"""Takes requests to cancel commands. The end of the command is the verdict for everyone who asks."""

from fogline.address import CommandAddress, shown
from fogline.amqp.outcome import ACCEPTED, MODIFIED, RELEASED, Outcome, rejected
from fogline.commands.cancel import TOO_LATE
from fogline.commands.command import CommandState
from fogline.errors import Poison
from fogline.process.crash_points import CrashPoint, crash_point
from fogline_cloud.access.policy import Action, Policy
from fogline_cloud.access.principal import Principal
from fogline_cloud.bridge.commands.command_table import CommandTable, Settle
from fogline_cloud.bridge.commands.verdict_waiters import Decided
from fogline_cloud.bridge.group.shard_table import ShardTable
from fogline_cloud.commands.command_life import CommandLife
from fogline_cloud.commands.record import CommandRecord

WAIT_S = 10.0
"""Time that an AMQP client waits for the verdict. Then it has to ask again."""


class Cancels:
    """Requests to cancel, of all commands of this bridge. All methods run on the loop."""

    def __init__(self, shards: ShardTable, table: CommandTable, policy: Policy) -> None:
        self._shards = shards
        self._table = table
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
        elif command_id not in self._table.open:
            done(record)
        else:
            self._table.waiters.add(command_id, done, wait_s)
            crash_point(CrashPoint.BEFORE_CANCELLING_COMMIT)
            self._table.on(record, CommandLife.cancel_asked, str(by))

    def settle_cancel(self, command_id: str, by: Principal, settle: Settle) -> None:
        """Cancel a command for an AMQP client. Raises `Poison` as `cancel` does."""
        self.cancel(command_id, by, lambda record: settle(outcome_of(record)))

    def supersede(self, record: CommandRecord, newer: str, by: str) -> None:
        """Cancel a command of the bridge's own, because `newer` replaces it. Its record tells the end."""
        if record.id in self._table.open:
            crash_point(CrashPoint.BEFORE_CANCELLING_COMMIT)
            self._table.on(record, CommandLife.cancel_asked, by, newer)


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
