"""Who waits for the end of a command at this bridge, each with a limit. Used on the loop."""

import asyncio
from collections.abc import Callable

from fogline_cloud.commands.record import CommandRecord

Decided = Callable[[CommandRecord | None], None]
"""Gets the record of a command that is over, or that is not over in time; `None` if that is not known at present."""


class VerdictWaiters:
    """Callbacks by command id. `known` returns the record of a command."""

    def __init__(self, known: Callable[[str], CommandRecord | None]) -> None:
        self._known = known
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[str, dict[object, tuple[Decided, asyncio.TimerHandle]]] = {}

    def add(self, command_id: str, done: Decided, limit_s: float) -> None:
        """Call `done` once: with what `tell` gets, or after `limit_s` with the record as it is then."""
        key = object()
        timer = self._loop.call_later(limit_s, self._on_limit, command_id, key)
        self._waiting.setdefault(command_id, {})[key] = done, timer

    def tell(self, command_id: str, record: CommandRecord | None) -> None:
        """Call everyone who waits for a command."""
        for done, timer in self._waiting.pop(command_id, {}).values():
            timer.cancel()
            done(record)

    def close(self) -> None:
        """Forget everyone."""
        for waiting in self._waiting.values():
            for _, timer in waiting.values():
                timer.cancel()
        self._waiting.clear()

    def _on_limit(self, command_id: str, key: object) -> None:
        waiting = self._waiting[command_id]
        done, _ = waiting.pop(key)
        if not waiting:
            del self._waiting[command_id]
        done(self._known(command_id))
