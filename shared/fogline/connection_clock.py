"""The clock of an AMQP connection, by which a client tells a bridge when the time to live of a message ends.

AMQP's `ttl` counts from the moment at which the bridge reads the message. The time that the message spends in queues, in a
stalled connection or in front of a bridge that was stopped does not count. A bridge therefore tells its own clock in its open
frame, and a client states the end of the time to live on that clock. If the open frame is late, that end is too early by as
much, and never too late.
"""

import time
from collections.abc import Mapping

from msgspec.structs import replace

from fogline.message import Message, Property

CLOCK = "clock-ms"
"""Property of a bridge's open frame: milliseconds of its monotonic clock."""
DEADLINE = "deadline-ms"
"""Property of a message: the end of its time to live, in milliseconds of that clock."""


def monotonic_ms() -> int:
    """Return this machine's monotonic clock in milliseconds."""
    return time.monotonic_ns() // 1_000_000


def offset_of(properties: Mapping[str, Property], now_ms: int) -> int | None:
    """Return how far the clock of a peer is ahead of `now_ms`, or less; `None` if the peer does not tell its clock."""
    clock_ms = _whole(properties.get(CLOCK))
    return None if clock_ms is None else clock_ms - now_ms


def with_time_left(message: Message, ends_ms: int, now_ms: int, offset_ms: int | None) -> Message:
    """Return the message as it has to be sent now. `ends_ms`: the end of its time to live, on the clock of `now_ms`.

    `offset_ms`: from `offset_of`. Without it, time that passes on the way does not count.
    """
    properties = {name: value for name, value in message.properties.items() if name != DEADLINE}
    if offset_ms is not None:
        properties[DEADLINE] = ends_ms + offset_ms
    ttl_ms = None if message.ttl_ms is None else max(1, ends_ms - now_ms)
    return replace(message, ttl_ms=ttl_ms, properties=properties)


def time_left_ms(message: Message, now_ms: int) -> int | None:
    """Return what is left of a message's time to live, from 0 on, if its sender stated the end. `now_ms`: own clock."""
    deadline_ms = _whole(message.properties.get(DEADLINE))
    return None if deadline_ms is None else max(0, deadline_ms - now_ms)


def _whole(value: Property) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
