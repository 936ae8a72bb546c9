"""Settings that another setting switches off: a file that has such a key is refused, because its writer expects an effect."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fogline.errors import Misconfigured


class Unused(NamedTuple):
    """A key without effect. `table`: dotted; `*` stands for each name. `when`: True for a table in which the key does nothing.

    `why`: what is so, and what to do.
    """

    table: str
    key: str
    when: Callable[[Mapping[str, Any]], bool]
    why: str


def refuse_unused(settings: Mapping[str, Any], known: Iterable[Unused], path: Path) -> None:
    """Raise `Misconfigured` for a key without effect. `settings`: a file's content, whose types were checked."""
    for each in known:
        for table in _tables(settings, each.table.split(".")):
            if each.key in table and each.when(table):
                raise Misconfigured(f"{path}: {each.table}.{each.key} has no effect: {each.why}")


def _tables(settings: Any, names: list[str]) -> list[Mapping[str, Any]]:
    """Return the tables of this name. One of an array, or of `*`, is each of them."""
    found: list[Any] = [settings]
    for name in names:
        inner = [value for each in found for key, value in each.items() if name in (key, "*")]
        found = [table for each in inner for table in (each if isinstance(each, list) else [each])]
    return found
