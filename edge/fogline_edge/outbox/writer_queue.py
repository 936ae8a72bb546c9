"""The items of the writer's queue, and the callbacks by which the writer answers its owner."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fogline_edge.outbox.ingest import Act, Waiting

if TYPE_CHECKING:
    from fogline_edge.outbox.writer import Writer


FAILED = object()
"""The result of an `Act` that raised: it is not told."""


@dataclass(frozen=True, slots=True)
class Call:
    """Something to be done with the database, and whom to tell. `done` and `failed` are called on this thread."""

    run: Callable[["Writer"], Any]
    done: Callable[[Any], None]
    failed: Callable[[BaseException], None]


@dataclass(slots=True)
class Settlement:
    """What the uplink has learnt since the last transaction. `upto` by stream; `sent`: events handed over."""

    upto: dict[str, int] = field(default_factory=dict)
    sent: dict[str, int] = field(default_factory=dict)

    def add(self, later: "Settlement") -> None:
        """Take in what was learnt later."""
        for name, upto in later.upto.items():
            self.upto[name] = max(upto, self.upto.get(name, 0))
        for name, sent in later.sent.items():
            self.sent[name] = self.sent.get(name, 0) + sent


@dataclass(frozen=True, slots=True)
class Nudge:
    """Something of the writer's own has been left to do."""


Work = list[Waiting | Act] | Settlement | Call | Nudge | None


class Told:
    """What the writer tells its owner; each is called on the writer's thread."""

    def __init__(
        self,
        committed: Callable[[list[tuple[Waiting | Act, Any]]], None],
        full: Callable[[bool], None],
        fatal: Callable[[str], None],
        closing: Callable[[Exception | None], None],
    ) -> None:
        self.committed = committed
        self.full = full
        self.fatal = fatal
        self.closing = closing
