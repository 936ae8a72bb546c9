"""Command records that the dispatcher writes through the shard's thread, each within a transaction."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from fogline.command import CommandState
from fogline_cloud.audit.record import AuditRecord
from fogline_cloud.commands.record import CommandRecord
from fogline_cloud.commands.replacement import keep_cancellation, replaced_by
from fogline_cloud.shard.owned_shard import OwnedShard

_log = logging.getLogger("fogline.audit")


@dataclass(slots=True)
class CommandChange:
    """A new state of a command. `done` or `given_up` is called, on the shard's thread.

    In the same transaction, a new command takes the place of those that it replaces: so none of them is sent after it, whoever
    owns the shard next.
    """

    record: CommandRecord
    done: Callable[[CommandRecord], None]  # after the commit: the valid record, this one or one that it must not replace
    given_up: Callable[[], None]  # the shard is lost; the record may or may not be written
    replaced: Callable[[CommandRecord], None] = lambda _: None  # after the commit, before `done`: a command that is replaced
    size: int = 1
    urgent: bool = True

    def perform(self, owned: OwnedShard) -> Callable[[], None]:
        """Write the record if it may follow the known one."""
        registry, replaced = owned.registry, []
        record = keep_cancellation(registry.get(self.record.id), self.record)
        if registry.change(record):
            owned.writer.write_command(record)
            replaced = replaced_by(record, registry) if record.state is CommandState.ACCEPTED else []
            for each in replaced:
                registry.put(each)
                owned.writer.write_command(each)
        valid = registry.get(record.id) or record
        return lambda: self._committed(valid, replaced)

    def _committed(self, valid: CommandRecord, replaced: list[CommandRecord]) -> None:
        for each in replaced:
            self.replaced(each)
        self.done(valid)

    def give_up(self) -> None:
        """Report that this bridge lost the shard."""
        self.given_up()


@dataclass(slots=True)
class AuditNote:
    """A decision of the bridge that no other work writes."""

    audit: AuditRecord
    size: int = 0
    urgent: bool = False

    def perform(self, owned: OwnedShard) -> Callable[[], None]:
        """Write the record."""
        owned.writer.write_audit(self.audit)
        return lambda: None

    def give_up(self) -> None:
        """Log the decision: the peer has it already, and only the record is lost."""
        _log.warning("not in the audit, because its shard went away: %s", self.audit)
