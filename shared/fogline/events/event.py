"""The event: one report of a device, as raw bytes with its device, time and protocol.

An `Arrival` is an adapter's message to the gateway. An `Event` is stored, and is the same on every wire (CloudEvents 1.0).
"""

from collections.abc import Callable
from contextvars import ContextVar
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache

import msgspec

from fogline.address import source_of
from fogline.events.identity import Evidence, Retransmission, RuleIdentity, digest
from fogline.events.report_on_change import ReportPolicy

EMPTY_NOTIFICATION = "application/vnd.eclipse-hono-empty-notification"
"""Content type of an event without a body, whose `ttd` says how long the device takes commands (Eclipse Hono)."""

POSSIBLE_DUPLICATE = "possible-duplicate-of"
"""Key in `Event.properties`: the id of an earlier event that this one may repeat."""


CONFLICTING = "same-key-as"
"""Key in `Event.properties`: the id of an earlier event, to which the device gave the same key and another payload."""


class Lane(StrEnum):
    """A class of traffic with an AMQP link and a Kafka topic of its own."""

    ALARM = "alarm"
    TELEMETRY = "telemetry"
    BULK = "bulk"
    REPLY = "reply"


class TimeQuality(StrEnum):
    """Quality of the gateway's clock when it stored the event. `SYNCED`: the clock was known to be right."""

    SYNCED = "synced"
    UNSYNCED = "unsynced"
    CORRECTED = "corrected"
    """It was not right, but `recordedtime` was computed later from the clock since boot."""


class CommandOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a command, on lane `reply`. `state`: a terminal `CommandState`; `correlation`: the operator's id as text."""

    command: str
    state: str
    status: int
    correlation: str


class Arrival(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A message of a device, as an adapter received it."""

    device: str
    channel: str  # the source within the device (an MQTT topic, a CoAP path, a characteristic)
    lane: Lane
    content_type: str
    data: bytes
    adapter: str
    type: str = "telemetry"
    time_ns: int | None = None  # the device's time since 1970
    evidence: Evidence | None = None  # the best identity that the device gave (tiers 1 to 4); None for tier 5
    retransmission: Retransmission | None = None  # None if the protocol has no information (MQTT QoS 0)
    ttd_s: int | None = None  # for which the device takes commands (Eclipse Hono's time till disconnect), -1 for no limit
    expiry_s: int | None = None  # after which the message is of no use (MQTT 5 message expiry)
    properties: str | None = None  # URL query (`a=b&c=d`): MQTT 5 user properties, the rest of Hono's property bag
    outcome: CommandOutcome | None = None
    report: ReportPolicy | None = None  # the filter for a device that repeats itself
    shared: bool = False  # other gateways may receive the same message
    identity: RuleIdentity | None = None  # the rule of the settings that decided about `evidence`
    dataref: str | None = None  # of a large body, or a chunk of one (`fogline.events.large_body`)
    body_digest: bytes | None = None  # of a large body, as `digest` makes it

    def payload_digest(self, token: bytes = b"") -> bytes:
        """Return the 16-byte digest of the payload, which is that of the large body if there is one."""
        return digest(self.channel, self.data, token) if self.body_digest is None else self.body_digest


class Event(msgspec.Struct, frozen=True, gc=False):
    """One stored event. Attribute names are those of CloudEvents 1.0 (section 3); times are RFC 3339 in UTC.

    Construct it with keyword arguments. Only the batch decoder uses positions: keywords take two thirds of its time.
    """

    id: str
    tenant: str
    device: str
    type: str
    subject: str
    recordedtime: str
    content_type: str
    data: bytes  # the device's bytes, unchanged
    gateway: str
    stream: str  # 16 lower-case hex digits
    sequence: int  # counts from 1 within the stream, without holes
    lane: Lane
    timequality: TimeQuality
    dedup: str
    adapter: str  # Hono's `orig_adapter`
    time: str | None = None
    replayed: bool = False
    ttd: int | None = None  # as in `Arrival`
    expirytime: str | None = None  # the end of the event's use (CloudEvents extension)
    properties: str | None = None  # as in `Arrival`
    commandid: str | None = None  # with the next three: on lane `reply`, the command that this event ends (`CommandOutcome`)
    commandstate: str | None = None
    correlationid: str | None = None
    status: int | None = None
    dataref: str | None = None  # as in `Arrival` (CloudEvents extension)

    def body(self) -> bytes:
        """Return the body, also a large one, which is read from where it is stored. For parsers.

        Raises what the reader of bodies raises, and `LookupError` where there is none.
        """
        return self.data if self.dataref is None else BODY_READER.get()(self)

    @property
    def source(self) -> str:
        """The CloudEvents `source`: the device."""
        return source_of(self.tenant, self.device)


def _no_reader(event: Event) -> bytes:
    raise LookupError(f"the body of event {event.id} is not here: {event.dataref}")


BODY_READER: ContextVar[Callable[[Event], bytes]] = ContextVar("BODY_READER", default=_no_reader)
"""Reads the body that an event refers to (`fogline.events.large_body`)."""

_NS = 1_000_000_000


@lru_cache(maxsize=64)
def rfc3339(time_ns: int) -> str:
    """Return nanoseconds since 1970 as RFC 3339 in UTC, with microseconds (the precision of Spark and Delta)."""
    seconds, rest = divmod(time_ns, _NS)
    return f"{_second(seconds)}.{rest // 1000:06d}Z"


@lru_cache(maxsize=64)
def _second(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"


def parse_rfc3339(text: str) -> int:
    """Return an RFC 3339 time as nanoseconds since 1970. Raises `ValueError`, also for a time without an offset."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"a time needs an offset or Z: {text!r}")
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * _NS + since.microseconds * 1000


class Receipt(StrEnum):
    """The result of an arrival after the commit. The device gets an acknowledgement for each."""

    STORED = "stored"
    DUPLICATE = "duplicate"
    DEAD = "dead"  # stored as a dead letter
    FILTERED = "filtered"  # discarded by its `report`
