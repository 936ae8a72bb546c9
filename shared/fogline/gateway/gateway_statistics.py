"""The statistics that a gateway sends to its bridge on the hello link, once a minute, beside its ledger statements.

They do not pass the outbox: they would arrive after a backlog, would not arrive from a full outbox, and would wear the card. A
bridge asks for them in its answer to hello (`Welcome.statistics_s`). Pure.
"""

from typing import Annotated

import msgspec

from fogline.documents.json_document import read_document
from fogline.errors import Poison
from fogline.events.event import Lane

STATISTICS_CONTENT_TYPE = "application/vnd.fogline-statistics+json"
MAX_STATISTICS_BYTES = 8192
"""Limit of the body of one message."""

Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e12)]
Celsius = Annotated[float, msgspec.Meta(ge=-273, le=1000)]


class LaneBacklog(msgspec.Struct, frozen=True, omit_defaults=True):
    """The events of one lane that the bridge has not accepted. `oldest_s`: age of the oldest one."""

    events: Count = 0
    oldest_s: Seconds = 0.0


class OutboxNumbers(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The outbox. `used_bytes`: pages of the file that are in use. The counts of events are those since the file was made."""

    used_bytes: Count = 0
    max_bytes: Count = 0
    dead: Count = 0
    dropped: Count = 0
    quarantined: Count = 0
    lanes: dict[Lane, LaneBacklog] = msgspec.field(default_factory=dict)


class CommandNumbers(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Commands that ended since the gateway started, by their final state."""

    succeeded: Count = 0
    failed: Count = 0
    rejected: Count = 0
    expired: Count = 0
    in_doubt: Count = 0


class MachineNumbers(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The machine, as far as its kernel tells. `None` stands for unknown.

    `disk_written_bytes`: written to the disk of the outbox by all programs since boot. `disk_life_used`: the share of its life
    that an eMMC reports as used. `undervoltage` and `throttled` are those of a Raspberry Pi, at this moment.
    """

    disk_size_bytes: Count | None = None
    disk_free_bytes: Count | None = None
    disk_written_bytes: Count | None = None
    disk_life_used: Annotated[float, msgspec.Meta(ge=0, le=10)] | None = None
    written_bytes: Count | None = None  # by the gateway's process since it started
    temperature_c: Celsius | None = None
    undervoltage: bool | None = None
    throttled: bool | None = None


class GatewayStatistics(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A gateway's present numbers. `bluetooth`: True if the adapter works; None if the gateway does not use Bluetooth."""

    version: Annotated[str, msgspec.Meta(max_length=64, pattern=r"\A[ -~]*\Z")]
    time_ms: Count
    clock_synced: bool
    uptime_s: Seconds
    outbox: OutboxNumbers
    commands: CommandNumbers
    machine: MachineNumbers
    bluetooth: bool | None = None


def encode_statistics(statistics: GatewayStatistics) -> bytes:
    """Return the JSON body of the message."""
    return msgspec.json.encode(statistics)


def decode_statistics(body: bytes) -> GatewayStatistics:
    """Return the statistics of a body. Raises `Poison('malformed')`, also for an oversized one."""
    if len(body) > MAX_STATISTICS_BYTES:
        raise Poison("malformed", f"statistics of {len(body)} bytes; a gateway sends at most {MAX_STATISTICS_BYTES}")
    return read_document(body, GatewayStatistics, "a gateway's statistics")
