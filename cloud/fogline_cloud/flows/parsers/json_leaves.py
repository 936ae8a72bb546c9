"""The values of a JSON document one by one, as readings with units, for parsers that know the names of quantities."""

import re
from collections.abc import Iterator

from fogline_cloud.flows.parsers import Leftover, Reading
from fogline_cloud.flows.parsers.json_values import number_of
from fogline_cloud.flows.parsers.strict_json import MAX_DEPTH, TOO_DEEP, Json, OddValue

Path = tuple[str, ...]
"""The names of the members that lead to a value, and the numbers of elements of arrays."""

NUMBER = re.compile(r"[+-]?[0-9]{1,300}(\.[0-9]+)?")
"""A decimal number within a text."""
_SWITCH = {"ON": 1.0, "OFF": 0.0}


def leaves(value: Json, path: Path = ()) -> Iterator[tuple[Path, Json]]:
    """Yield every value that is neither an object nor an array, in its order; an `OddValue` for what is nested too deep."""
    if isinstance(value, dict | list):
        if len(path) == MAX_DEPTH:
            yield path, OddValue(TOO_DEEP)
            return
        for name, member in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(member, (*path, str(name)))
    else:
        yield path, value


def quantity_name(path: Path) -> str:
    """Return the last name of a path that is not the number of an element."""
    return next((name for name in reversed(path) if not name.isdecimal()), "")


def reading_of(path: Path, leaf: Json, *, unit: str | None, numeric: bool, time_ns: int | None) -> Reading | Leftover:
    """Return a value as a reading. `ON` and `OFF` are 1 and 0. `numeric`: a text that is no number is not understood."""
    metric = ".".join(path) or "value"
    if isinstance(leaf, OddValue):
        return Leftover(metric, leaf.why)
    if isinstance(leaf, str):
        if leaf in _SWITCH:
            return Reading(metric, _SWITCH[leaf], time_ns=time_ns)
        if not numeric:
            return Reading(metric, text=leaf, time_ns=time_ns)
        if NUMBER.fullmatch(leaf) is None:
            return Leftover(metric, "a text instead of a number")
        leaf = float(leaf)
    if leaf is None or isinstance(leaf, dict | list):
        return Leftover(metric, "no value")
    if isinstance(leaf, bool):
        unit = None
    number, digits = number_of(leaf)
    return Reading(metric, number, digits, unit, time_ns)
