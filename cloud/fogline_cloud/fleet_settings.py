"""Settings of what is expected of the fleet. docs/reference/settings.md is generated from them."""

from typing import Annotated

import msgspec
from msgspec import Meta

from fogline.events.event import Lane


class SilentSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The longest silence of devices (docs/fleet.md). The first entry of a lane that matches a device applies."""

    type: str = "*"
    """Shell pattern for the type of the device in the registry. `*` matches devices without a type too."""
    lane: Lane | None = None
    """Events of this lane only. Default: events of any lane."""
    after_s: Annotated[float, Meta(gt=0)]
    """Seconds without an event after which the device is silent. More than `devices.seen_every_s`."""


class FleetSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is expected of the fleet."""

    silent: Annotated[list[SilentSettings], Meta(max_length=100)] = msgspec.field(default_factory=list)
    """Longest silences. Default: a day, for every device."""
