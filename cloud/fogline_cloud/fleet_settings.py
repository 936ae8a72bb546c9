"""Settings of what is expected of the fleet. docs/reference/settings.md is generated from them."""

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from fogline.errors import Misconfigured
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


def require_longer(fleet: FleetSettings, seen_every_s: float, path: Path) -> None:
    """Raise `Misconfigured` for a silence that the registry cannot tell: it notes a device every `seen_every_s` seconds."""
    for each in fleet.silent:
        if each.after_s <= seen_every_s:
            raise Misconfigured(
                f"{path}: [[fleet.silent]] after_s = {each.after_s:g}: expected more than devices.seen_every_s, which is "
                f"{seen_every_s:g}: the registry notes each device so often"
            )
