"""Settings of large bodies."""

from typing import Annotated

from msgspec import Meta

from fogline.events.large_body import MAX_BODY_BYTES
from fogline_edge.settings_types import Positive, StrictTable

OUTBOX_SHARE = 4
"""A body takes at most one part in so many of the outbox: it must fit beside the chunks of others."""


class BodySettings(StrictTable, frozen=True, kw_only=True):
    """Bodies of more than 262,144 bytes, which devices send by HTTP, MQTT and CoAP. They are stored as they come."""

    max_bytes: Annotated[int, Meta(ge=0, le=MAX_BODY_BYTES)] = MAX_BODY_BYTES
    """Largest body in bytes, and never more than a quarter of `outbox.max_bytes`; 0: none of more than 262,144 bytes."""
    max_uploads: Positive = 8
    """Large bodies that come at the same time, each with up to 2.5 MB of memory. For a further one there is no room."""
    max_device_uploads: Positive = 2
    """Large bodies of one device that come at the same time."""
    idle_timeout_s: Annotated[float, Meta(gt=0)] = 60.0
    """Time without a byte after which a body is given up, in seconds."""
    max_time_s: Annotated[float, Meta(gt=0)] = 3600.0
    """Time in which a body must come whole, in seconds."""


def largest_body(settings: BodySettings, outbox_bytes: int) -> int:
    """Return the largest body that the gateway takes, in bytes. `outbox_bytes`: limit of the outbox."""
    return min(settings.max_bytes, outbox_bytes // OUTBOX_SHARE)
