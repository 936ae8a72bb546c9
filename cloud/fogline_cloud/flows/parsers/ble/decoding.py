"""What the decoders of advertisements are given, and what they share."""

from collections.abc import Callable

import msgspec

from fogline.advertisement import Advertisement, Heard
from fogline.errors import Poison
from fogline_cloud.flows.parsers import Reading


class Broadcast(msgspec.Struct, frozen=True):
    """An advertisement, who was heard, and the key of that device, if one is known."""

    advertisement: Advertisement
    heard: Heard
    key: bytes | None = None


Decoder = Callable[[bytes, Broadcast], list[Reading]]
"""Reads a device's data (of a service, or of a manufacturer). Raises `Skip` or `Poison`."""


def truncated(what: str, data: bytes, wanted: int) -> Poison:
    """To raise where `data` is too short."""
    return Poison("truncated", f"{what} has {wanted} bytes or more; these are {len(data)}")
