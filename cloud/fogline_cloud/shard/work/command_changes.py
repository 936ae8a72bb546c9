"""Command records that the dispatcher writes through the shard's thread, each within a transaction."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from fogline.events.event import Event
from fogline_cloud.audit.record import AuditRecord
from fogline_cloud.commands.kafka_form import verdict_event
from fogline_cloud.commands.record import CommandRecord, same_verdict
from fogline_cloud.commands.succession import keep_cancellation, keep_verdict, replaced_by
from fogline_cloud.shard.owned_shard import Linger, OwnedShard

_log = logging.getLogger("fogline.shard")


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
    linger: Linger = Linger.NONE

    def perform(self, owned: OwnedShard) -> Callable[[], None]:
        """Write the record if it may follow the known one."""
        registry, replaced = owned.registry, []
        former = registry.get(self.record.id)
        record = keep_verdict(former, keep_cancellation(former, self.record))
        owes_response = record.of_kafka and record.owes_reply and (former is None or not same_verdict(former, record))
        if owes_response:
            record = replace(record, reply_delivered=True)
        if registry.change(record):
            owned.writer.write_command(record)
            if owes_response:
                owned.writer.write_response(verdict_event(record, time.time_ns()), record.failure_headers)
            replaced = replaced_by(record, registry.open_for(record.gateway))
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
class FailureNotification:
    """The response to a command of Kafka that has no record. One of the callbacks is called, on the shard's thread."""

    event: Event
    headers: Mapping[str, str]
    done: Callable[[], None]  # after the commit
    given_up: Callable[[], None]  # the shard is lost; the response may or may not be written
    size: int = 1
    linger: Linger = Linger.NONE

    def perform(self, owned: OwnedShard) -> Callable[[], None]:
        """Write the response."""
        owned.writer.write_response(self.event, self.headers)
        return self.done

    def give_up(self) -> None:
        """Report that this bridge lost the shard."""
        self.given_up()

    def refuse(self, why: str) -> None:
        """Go on without a response: it would fail again."""
        _log.error("there is no response to command %s: %s", self.event.commandid, why)
        self.done()


@dataclass(slots=True)
class AuditNote:
    """A decision of the bridge that no other work writes."""

    audit: AuditRecord
    size: int = 0
    linger: Linger = Linger.FULL

    def perform(self, owned: OwnedShard) -> Callable[[], None]:
        """Write the record."""
        owned.writer.write_audit(self.audit)
        return lambda: None

    def give_up(self) -> None:
        """Log the decision: the peer has it already, and only the record is lost."""
        _log.warning("not in the audit, because its shard went away: %s", self.audit)
