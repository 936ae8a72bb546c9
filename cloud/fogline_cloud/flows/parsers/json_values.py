"""Parser `json`: every number, boolean and text of a JSON document is a reading, named by the way to it.

`{"air": {"t": 21.5, "ok": true}, "v": [1, 2]}` gives `air.t`, `air.ok` (1.0), `v.0`, `v.1`. A document that is one bare
value gives `value`. Nulls give nothing. No member is taken for a time: a name does not say what it means.
"""

from fogline.errors import Poison
from fogline.event import Event
from fogline_cloud.flows.parsers import MAX_READINGS, Reading
from fogline_cloud.flows.parsers.strict_json import MAX_DEPTH, Json, loads

_EXACT = 2**53
"""Up to here a double holds every integer."""
_NESTED = (dict, list)


def parse(event: Event) -> list[Reading]:
    """Raises `Poison` (also `too-many`, `too-deep`, `not-finite`)."""
    return readings_of(loads(event.data))


def readings_of(value: Json) -> list[Reading]:
    """The readings of a document that is decoded already. Raises `Poison` (`too-many`, `too-deep`, `not-finite`)."""
    found: list[Reading] = []
    _collect("", value, 0, found)
    return found


def _collect(path: str, value: Json, depth: int, found: list[Reading]) -> None:
    if isinstance(value, _NESTED):
        if depth == MAX_DEPTH:
            raise Poison("too-deep", f"nested deeper than {MAX_DEPTH}")
        before = f"{path}." if path else ""
        for name, member in value.items() if isinstance(value, dict) else enumerate(value):
            _collect(f"{before}{name}", member, depth + 1, found)
    elif value is not None:
        if len(found) == MAX_READINGS:
            raise Poison("too-many", f"more than {MAX_READINGS} values in one event")
        number, text = (None, value) if isinstance(value, str) else _number(value)
        found.append(Reading(path or "value", number, text))


def _number(value: float) -> tuple[float, str | None]:
    try:
        return float(value), str(value) if isinstance(value, int) and abs(value) > _EXACT else None
    except OverflowError:
        raise Poison("not-finite", "a number is too big for a double") from None
