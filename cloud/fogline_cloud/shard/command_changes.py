"""Command records that the dispatcher writes through the shard's thread, each within a transaction."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from fogline_cloud.audit.record import AuditRecord
from fogline_cloud.commands.record import CommandRecord
from fogline_cloud.shard.owned_shard import OwnedShard

_log = logging.getLogger("fogline.audit")


@dataclass(slots=True)
class CommandChange:
    """A new state of a command. One of the callbacks is called, on the shard's thread."""

    record: CommandRecord
    done: Callable[[CommandRecord], None]  # after the commit: the valid record, this one or one that it must not replace
    given_up: Callable[[], None]  # the shard is lost; the record may or may not be written
    size: int = 1
    urgent: bool = True

    def perform(self, owned: OwnedShard) -> Callable[[], None]:
        """Write the record if it may follow the known one."""
        if owned.registry.change(self.record):
            owned.writer.write_command(self.record)
        valid = owned.registry.get(self.record.id) or self.record
        return lambda: self.done(valid)

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
