"""Settings of the topics that hold readings. docs/reference/settings.md is generated from them."""

from typing import Annotated

import msgspec
from msgspec import Meta

MAX_TOPICS = 32
NAME_PATTERN = "^[a-z0-9-]{1,32}$"


class CanonicalTopicSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A topic for the readings of some events. All patterns must match. The first matching entry applies."""

    name: Annotated[str, Meta(pattern=NAME_PATTERN)]
    """Name within the topic, which is `fogline.canonical-{name}.{tenant}`. Several entries may have the same."""
    type: str = "*"
    """Shell pattern for the event's `type`: `telemetry`, `alarm` or another."""
    lane: str = "*"
    """Shell pattern for the event's lane."""
    device: str = "*"
    """Shell pattern for the device."""
    subject: str = "*"
    """Shell pattern for the channel (`subject` of the event)."""


class CanonicalSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The topics of readings that the flow writes for programs without Spark (docs/canonical.md)."""

    bucket_s: Annotated[int, Meta(ge=0, le=86_400)] = 3600
    """Length of a time bucket in seconds. The key of a record is the device and the begin of the bucket of `recordedtime`, so
    that a device with many events does not fill one partition. 0: the key is the device alone."""
    topics: Annotated[list[CanonicalTopicSettings], Meta(max_length=MAX_TOPICS)] = msgspec.field(default_factory=list)
    """Topics for the readings of some events, instead of `fogline.canonical.{tenant}`. `fogline topics create` makes them."""

    @property
    def names(self) -> list[str]:
        """The names of the further topics."""
        return sorted({each.name for each in self.topics})
