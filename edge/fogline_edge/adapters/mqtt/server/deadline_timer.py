"""A timer for a deadline that moves."""

import asyncio
from collections.abc import Callable


class DeadlineTimer:
    """Calls `expired` at the deadline (`None`: never). It asks for the deadline when it fires, so that a move costs nothing."""

    def __init__(self, deadline: Callable[[], float | None], expired: Callable[[], None]) -> None:
        self._deadline = deadline
        self._expired = expired
        self._handle: asyncio.TimerHandle | None = None

    def restart(self) -> None:
        """Wait for the present deadline."""
        self.cancel()
        deadline = self._deadline()
        if deadline is not None:
            self._handle = asyncio.get_running_loop().call_at(deadline, self._check)

    def fire_before(self, time: float) -> None:
        """Wait for the present deadline if the timer would fire after `time`."""
        if self._handle is None or self._handle.when() > time:
            self.restart()

    def cancel(self) -> None:
        """Stop the timer."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _check(self) -> None:
        deadline = self._deadline()
        if deadline is not None and deadline <= asyncio.get_running_loop().time():
            self._expired()
        else:
            self.restart()
