"""Where Bluetooth LE devices count what they say: a small set of pure functions, named in profiles.

A function gets the device's data (service data or manufacturer specific data) and gives the counter in it, or `None`.
"""

from collections.abc import Callable
from typing import Literal

import msgspec

from fogline.identity import Counter


class Place(msgspec.Struct, frozen=True):
    """Where a profile says that the counter stands."""

    offset: int
    width_bits: int
    byte_order: Literal["little", "big"]


def _at(data: bytes, place: Place) -> Counter | None:
    """At a fixed place."""
    width = place.width_bits // 8
    found = data[place.offset : place.offset + width]
    return Counter(int.from_bytes(found, place.byte_order), place.width_bits) if len(found) == width else None


_ENCRYPTED, _HAS_ADDRESS = 0x01, 0x02
_ADDRESS_BYTES = 6
_COUNTER_AND_MIC_BYTES = 8


def _bthome(data: bytes, _: Place) -> Counter | None:
    """BTHome v2 (bthome.io/format, /encryption).

    Encrypted: 32 bits, little endian, before the 4 bytes of the MIC. Not: the packet id, object 0x00, which is the first
    one because objects stand in numerical order.
    """
    if not data:
        return None
    begin = 1 + (_ADDRESS_BYTES if data[0] & _HAS_ADDRESS else 0)
    if data[0] & _ENCRYPTED:
        found = data[begin:][-_COUNTER_AND_MIC_BYTES:-4]
        return Counter(int.from_bytes(found, "little"), 32) if len(found) == 4 else None
    found = data[begin : begin + 2]
    return Counter(found[1], 8) if len(found) == 2 and found[0] == 0 else None


FINDERS: dict[str, Callable[[bytes, Place], Counter | None]] = {"at": _at, "bthome": _bthome}
"""By the name that a profile uses."""
