"""What a shard's thread holds while the shard is its own, and what may be done with it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from fogline_cloud.bridge.admission import Admission, Known, StreamKey
from fogline_cloud.bridge.transaction import TransactionLog
from fogline_cloud.commands.record import Record
from fogline_cloud.commands.refusals import RefusalAudits
from fogline_cloud.commands.registry import Registry
from fogline_cloud.commands.routes import Routes


@dataclass(slots=True)
class ShardCounters:
    """Since this process took the shard. `loose`: events of clients that number nothing."""

    landed: int = 0
    duplicate: int = 0
    loose: int = 0
    transactions: int = 0
    retaken: int = 0


@dataclass(slots=True)
class Holding:
    """One ownership of one shard. After any error but a clean commit all of it is thrown away.

    `tell` is called with commands' records as soon as they are known here, and again after the commit. `issued`: as of
    `Shard`. `dirty`: the streams about which the checkpoint does not say yet what is committed.
    `audits` limits the audit lines about refused replies.
    """

    log: TransactionLog
    admission: Admission
    registry: Registry
    routes: Routes
    counters: ShardCounters
    tell: Callable[[Sequence[Record]], None]
    issued: Callable[[str], bool]
    dirty: dict[StreamKey, Known] = field(default_factory=dict)
    audits: RefusalAudits = field(default_factory=RefusalAudits)

    @property
    def unwritten(self) -> bool:
        """Whether a checkpoint would say more than the last one."""
        return bool(self.dirty) or self.log.moved


class Work(Protocol):
    """Something to be done within a transaction. `size`: in events; `urgent`: nothing else is waited for."""

    @property
    def size(self) -> int:
        """How many events it stands for."""

    @property
    def urgent(self) -> bool:
        """Whether the transaction should be committed at once."""

    def perform(self, holding: Holding) -> Callable[[], None]:
        """Do it in the open transaction; what is returned is called after the commit.

        Called again, with another holding, if that transaction failed.
        """

    def give_up(self) -> None:
        """It will not be done here."""
