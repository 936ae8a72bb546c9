"""Parser `raw-number`: a body that is one decimal number in ASCII, for example `21.5`. The metric is the event's subject."""

import re

from fogline.errors import Poison
from fogline.events.event import Event
from fogline_cloud.flows.parsers import Reading, Skip

_NUMBER = re.compile(rb"\s*([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?)\s*")
_MAX_BYTES = 64


def parse(event: Event) -> list[Reading]:
    """Parse one event. Raises `Skip('not-a-number')`, and `Poison('not-finite')` for a number beyond a double."""
    match = _NUMBER.fullmatch(event.data) if len(event.data) <= _MAX_BYTES else None
    if match is None:
        raise Skip("not-a-number", "the body is not one decimal number")
    value = float(match[1])
    if value in (float("inf"), float("-inf")):
        raise Poison("not-finite", "the number is too big for a double")
    return [Reading(event.subject or "value", value)]
