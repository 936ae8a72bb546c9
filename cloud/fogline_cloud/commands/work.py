"""What a shard's thread writes of commands, each within a transaction."""

from collections.abc import Callable
from dataclasses import dataclass

from fogline_cloud.bridge.holding import Holding
from fogline_cloud.commands.record import Audit, Record


@dataclass(slots=True)
class Change:
    """A record that follows from what is known. `done` is called on the shard's thread, once it is committed.

    `done` gets the record that stands: this one, or the one that it may not replace. `given_up`: the shard went away
    first; whether it was written is unknown.
    """

    record: Record
    done: Callable[[Record], None]
    given_up: Callable[[], None]
    size: int = 1
    urgent: bool = True

    def perform(self, holding: Holding) -> Callable[[], None]:
        """Write it, if it may be."""
        if holding.registry.change(self.record):
            holding.log.write_command(self.record)
            stands = self.record
        else:
            stands = holding.registry.get(self.record.id) or self.record
        return lambda: self.done(stands)

    def give_up(self) -> None:
        """The shard is not this bridge's any more."""
        self.given_up()


@dataclass(slots=True)
class Note:
    """A decision about a command that was never taken, for the audit alone."""

    audit: Audit
    size: int = 1
    urgent: bool = False

    def perform(self, holding: Holding) -> Callable[[], None]:
        """Write it."""
        holding.log.write_audit(self.audit)
        return lambda: None

    def give_up(self) -> None:
        """It was said to the operator; only the note is lost."""
