"""The interface of the decoders of advertisements."""

from collections.abc import Callable

import msgspec

from fogline.advertisement import Advertisement, ReceivedAdvertisement
from fogline.errors import Poison
from fogline_cloud.flows.parsers import Leftover, Reading


class Broadcast(msgspec.Struct, frozen=True):
    """An advertisement as a gateway received it, and the device's key if one is known."""

    advertisement: Advertisement
    reception: ReceivedAdvertisement
    key: bytes | None = None


Decoder = Callable[[bytes, Broadcast], list[Reading | Leftover]]
"""Decodes the data of a service or of a manufacturer. Raises `Skip` or `Poison`."""


def truncated(what: str, data: bytes, wanted: int) -> Poison:
    """Return the error for `data` that is shorter than `wanted` bytes."""
    return Poison("truncated", f"{what} has {wanted} bytes or more; these are {len(data)}")
