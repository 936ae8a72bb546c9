"""The event: one thing that a device reported, raw bytes plus who, when, and by which protocol.

Two values, one on each side of the durable border:

- `Arrival`: what an adapter hands to the gateway. It has no number yet.
- `Event`: what was stored. Immutable from then on, and the same on every wire (CloudEvents 1.0).
"""

from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache

import msgspec

from fogline.address import source_of
from fogline.identity import Evidence, Retransmission
from fogline.report import Report

EMPTY_NOTIFICATION = "application/vnd.eclipse-hono-empty-notification"
"""The content type of an event without a body that only says, by its `ttd`, when the device takes commands (Hono)."""


POSSIBLE_DUPLICATE = "possible-duplicate-of"
"""The name, in `Event.properties`, under which an event gives the id of an earlier one that it may repeat."""


class Lane(StrEnum):
    """A class of traffic with its own AMQP link and, in the end, its own topic."""

    ALARM = "alarm"
    TELEMETRY = "telemetry"
    BULK = "bulk"
    REPLY = "reply"


class TimeQuality(StrEnum):
    """Whether the gateway's clock was known to be right when it stored the event.

    `CORRECTED`: it was not, and `recordedtime` was reckoned later, once it was, from the clock of the machine's boot.
    """

    SYNCED = "synced"
    UNSYNCED = "unsynced"
    CORRECTED = "corrected"


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a command: makes an arrival on lane `reply` of the device's answer, or of its having none.

    `state` is a terminal `fogline.command.State`; `correlation` the operator's correlation id as text.
    """

    command: str
    state: str
    status: int
    correlation: str


class Arrival(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a device sent, as an adapter received it.

    `channel`: where at the device it came from (an MQTT topic, a CoAP path, a characteristic).
    `evidence`: the best identity that the device gave (tiers 1 to 4), `None` for nothing (tier 5).
    `retransmission`: what the protocol says of resends; `None` where it says nothing (MQTT QoS 0).
    `time_ns`: the device's own time in nanoseconds since 1970, if it gave one. `ttd_s`: for how many seconds from now
    the device takes commands (Eclipse Hono's time till disconnect), -1 until it says otherwise. `expiry_s`: after so
    many seconds nobody wants to know any more (MQTT 5 message expiry). `properties`: what else the device said beside
    the payload, as a URL query (`a=b&c=d`): MQTT 5 user properties, the rest of Hono's property bag. `report`: when it is
    news, for devices that repeat themselves. `shared`: other gateways may hear the same.
    """

    device: str
    channel: str
    lane: Lane
    content_type: str
    data: bytes
    adapter: str
    type: str = "telemetry"
    time_ns: int | None = None
    evidence: Evidence | None = None
    retransmission: Retransmission | None = None
    ttd_s: int | None = None
    expiry_s: int | None = None
    properties: str | None = None
    outcome: Outcome | None = None
    report: Report | None = None
    shared: bool = False


class Event(msgspec.Struct, frozen=True, gc=False):
    """One stored event. Attribute names are those of CloudEvents; times are RFC 3339 in UTC.

    Name the attributes where you make one. Only what decodes many does without: names cost twice as much as all else.

    `stream` is 16 lower-case hex digits; `sequence` counts from 1 within it, without holes.
    `adapter` is Hono's `orig_adapter`. `data` is as the device sent it, byte for byte. `ttd`, `properties`: as in
    `Arrival`. `expirytime`: when it stops being of use (CloudEvents extension `expirytime`). `commandid`,
    `commandstate`, `correlationid`, `status`: on lane `reply`, the command that this is the end of (see `Outcome`).
    """

    id: str
    tenant: str
    device: str
    type: str
    subject: str
    recordedtime: str
    content_type: str
    data: bytes
    gateway: str
    stream: str
    sequence: int
    lane: Lane
    timequality: TimeQuality
    dedup: str
    adapter: str
    time: str | None = None
    replayed: bool = False
    ttd: int | None = None
    expirytime: str | None = None
    properties: str | None = None
    commandid: str | None = None
    commandstate: str | None = None
    correlationid: str | None = None
    status: int | None = None

    @property
    def source(self) -> str:
        """The CloudEvents `source`: the device."""
        return source_of(self.tenant, self.device)


_NS = 1_000_000_000


@lru_cache(maxsize=64)
def rfc3339(time_ns: int) -> str:
    """Nanoseconds since 1970 as RFC 3339 in UTC with microseconds (what Spark and Delta keep)."""
    seconds, rest = divmod(time_ns, _NS)
    return f"{_second(seconds)}.{rest // 1000:06d}Z"


@lru_cache(maxsize=64)
def _second(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"


def parse_rfc3339(text: str) -> int:
    """RFC 3339 to nanoseconds since 1970. Raises `ValueError`; a time without an offset is refused."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"a time needs an offset or Z: {text!r}")
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * _NS + since.microseconds * 1000


class Receipt(StrEnum):
    """What became of an arrival, told after the commit: all of these are acknowledged to the device as success.

    `FILTERED`: by its `report` it is no news.
    """

    STORED = "stored"
    DUPLICATE = "duplicate"
    DEAD = "dead"
    FILTERED = "filtered"
