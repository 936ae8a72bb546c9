"""The state of a shard while this bridge owns it, and the interface of work that changes it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol, runtime_checkable

from fogline.process.monitoring.metrics import Histogram
from fogline_cloud.audit.throttle import AuditThrottle
from fogline_cloud.commands.record import CommandRecord
from fogline_cloud.commands.registry import Registry
from fogline_cloud.commands.routes import Routes
from fogline_cloud.devices.device_table import DeviceTable
from fogline_cloud.devices.own_devices import OwnDevices
from fogline_cloud.settings import DeviceSettings
from fogline_cloud.shard.admission import Admission
from fogline_cloud.shard.checkpoint import CheckpointChanges
from fogline_cloud.shard.foreign_devices import MaySpeakFor
from fogline_cloud.shard.shard_writer import ShardWriter
from fogline_cloud.shard.sightings import Sightings


@dataclass(slots=True)
class ShardCounters:
    """Counts of a shard (see `fogline.process.monitoring.metrics`) since this process took it."""

    landed: int = 0
    duplicate: int = 0
    loose: int = 0
    transactions: int = 0
    retaken: int = 0
    commit_seconds: Histogram = field(default_factory=Histogram)
    settlement_seconds: Histogram = field(default_factory=Histogram)


@dataclass(slots=True)
class OwnedShard:
    """One ownership of one shard (see `Shard`). It is discarded after any error other than a clean commit."""

    writer: ShardWriter
    admission: Admission
    registry: Registry
    routes: Routes
    counters: ShardCounters
    on_commands: Callable[[Sequence[CommandRecord]], None]
    issued: Callable[[str], bool]
    changes: CheckpointChanges  # the state that the checkpoint lacks
    devices: OwnDevices = field(default_factory=OwnDevices)
    sightings: Sightings = field(default_factory=lambda: Sightings(DeviceTable(), DeviceSettings()))
    may_speak_for: MaySpeakFor = field(default=lambda _gateway, _device: True)
    audits: AuditThrottle = field(default_factory=AuditThrottle)


class Linger(Enum):
    """How long a transaction waits for more work, as a part of `bridge.transaction_ms`. The most urgent work decides."""

    NONE = 0.0
    """An operator waits."""
    SHORT = 0.2
    """An alarm, or a client that waits for its acknowledgement."""
    FULL = 1.0
    """Nobody waits: a gateway has stored the events already."""


class ShardWork(Protocol):
    """One piece of work within a Kafka transaction, for example a batch."""

    @property
    def size(self) -> int:
        """The number of events."""

    @property
    def linger(self) -> Linger:
        """How long the transaction may wait for more work."""

    def perform(self, owned: OwnedShard) -> Callable[[], None]:
        """Write to the open transaction; again if it fails. Return a callback that runs when consumers see the commit."""

    def give_up(self) -> None:
        """Report that this bridge will not perform the work, or does not know if it is committed."""


@runtime_checkable
class RefusableWork(Protocol):
    """Work of a sender that would send it again if it were only given up."""

    def refuse(self, why: str) -> None:
        """Reject the work for good, because it failed with the error `why` in a way that nobody foresaw."""
