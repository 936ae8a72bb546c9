"""Takes approvals of commands that need a second operator."""

from fogline.address import CommandAddress, shown
from fogline.amqp.outcome import ACCEPTED, RELEASED
from fogline.errors import Poison
from fogline_cloud.access.policy import Action, Policy
from fogline_cloud.access.principal import Principal
from fogline_cloud.bridge.commands.cancels import unknown_command
from fogline_cloud.bridge.commands.command_table import CommandTable, Settle
from fogline_cloud.bridge.group.shard_table import ShardTable
from fogline_cloud.commands.approval import approval_refusal
from fogline_cloud.commands.command_life import CommandLife


class Approvals:
    """Approvals of all commands of this bridge. All methods run on the loop."""

    def __init__(self, shards: ShardTable, table: CommandTable, policy: Policy) -> None:
        self._shards = shards
        self._table = table
        self._policy = policy

    def approve(self, command_id: str, by: Principal, settle: Settle) -> None:
        """Approve a command. `settle` is called once, now or after the commit.

        ACCEPTED: it is approved, now or by an earlier copy of this request. REJECTED: by this client it cannot be. RELEASED or
        MODIFIED: ask again. Raises `Poison`: `unknown-command`, or `not-authorised` for a client that may not send the command.
        """
        record = self._table.registry.get(command_id)
        if record is None and self._shards.all_ready:
            raise Poison("unknown-command", unknown_command(command_id))
        if record is None or self._shards.ready(self._shards.number_of(record.gateway)) is None:
            settle(RELEASED)
            return
        if not self._policy.may(by, Action.SEND, CommandAddress(record.tenant, record.device), record.name):
            raise Poison("not-authorised", f"{by} may not send command {shown(record.name)} to {record.device}")
        if record.approved_by == str(by):
            settle(ACCEPTED)
        elif (refusal := approval_refusal(record, by)) is not None:
            settle(refusal)
        else:
            self._table.open[command_id].waiting.append(settle)
            self._table.on(record, CommandLife.approved, str(by))
