"""An entry of the memory of duplicates, as a row of `memory` holds it."""

import msgspec


class CounterValue(msgspec.Struct, frozen=True, array_like=True):
    """A value of a counter, extended over its wraps, with the payload's digest and the age at which it came."""

    value: int
    digest: bytes
    age_s: int


class MemoryEntry(msgspec.Struct, frozen=True, array_like=True):
    """An entry of memory: the payload's digest, its age, and numbers whose meaning depends on the key.

    `recent`: counter values that a duplicate may repeat.
    """

    digest: bytes
    age_s: int
    first: int = 0
    second: int = 0
    third: int = 0
    recent: tuple[CounterValue, ...] = ()
