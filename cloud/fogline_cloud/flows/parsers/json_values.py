"""Parser `json`: every number, boolean and text of a JSON document is a reading, named by its path.

`{"air": {"t": 21.5, "ok": true}, "v": [1, 2]}` gives `air.t`, `air.ok` (1.0), `v.0`, `v.1`. A document that is a single
value gives `value`. A null gives no reading. No member is read as a time, because its name does not define its meaning.

Not understood: a member that is named twice, and values nested deeper than `MAX_DEPTH`.
"""

import math
from collections.abc import Iterator

from fogline.events.event import Event
from fogline_cloud.flows.parsers import Leftover, Reading
from fogline_cloud.flows.parsers.strict_json import MAX_DEPTH, TOO_DEEP, Json, OddValue, loads

_EXACT = 2**53  # a double holds every integer up to this one
_NESTED = (dict, list)


def parse(event: Event) -> Iterator[Reading | Leftover]:
    """Parse one event. Raises what `strict_json` does."""
    return readings_of(loads(event.data))


def readings_of(value: Json) -> Iterator[Reading | Leftover]:
    """Yield the readings of a decoded document."""
    return _readings("", value, 0)


def _readings(path: str, value: Json, depth: int) -> Iterator[Reading | Leftover]:
    if isinstance(value, _NESTED):
        if depth == MAX_DEPTH:
            yield Leftover(path, TOO_DEEP)
            return
        prefix = f"{path}." if path else ""
        for name, member in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _readings(f"{prefix}{name}", member, depth + 1)
    elif isinstance(value, OddValue):
        yield Leftover(path or "value", value.why)
    elif value is not None:
        number, text = (None, value) if isinstance(value, str) else number_of(value)
        yield Reading(path or "value", number, text)


def number_of(value: float) -> tuple[float, str | None]:
    """Return a number as a double (infinite if it is too big for one), and its digits if the double does not hold them."""
    try:
        return float(value), str(value) if isinstance(value, int) and abs(value) > _EXACT else None
    except OverflowError:
        return math.inf, None
