"""Parsers of a plugin distribution, as somebody else would install them, each wrong in its own way."""

from collections.abc import Iterator

from fogline.event import Event
from fogline_cloud.flows.parsers import Reading, Retry


def endless(event: Event) -> Iterator[Reading]:
    """Never comes back."""
    number = 0
    while True:
        number += 1
        if number < 0:
            yield Reading("never", 0.0)


def wrong(event: Event) -> Iterator[Reading]:
    """Fails after the first reading."""
    yield Reading("first", 1.0)
    raise LookupError("the table of this device is empty")


def again(event: Event) -> list[Reading]:
    """Always wants another try."""
    raise Retry
