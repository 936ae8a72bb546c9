"""One reader of a table's changes, and how long maintenance keeps what it has not read. Pure."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Annotated

import msgspec

KEPT = timedelta(days=30)
"""Time for which maintenance keeps log and files for a reader that does not come back."""


class ChangeReader(msgspec.Struct, frozen=True):
    """One reader. `version`: the last version of which it needs nothing any more. `at_ms`: time of the note, since 1970."""

    name: str
    version: Annotated[int, msgspec.Meta(ge=-1)]
    at_ms: int


def waiting(readers: Iterable[ChangeReader], now_ms: int) -> list[ChangeReader]:
    """Return the readers for which log and files are kept: those that came back within `KEPT`."""
    return [each for each in readers if now_ms - each.at_ms < KEPT.total_seconds() * 1000]
