"""A thread that answers questions one after the other, so that pages take one CPU at most, however many are open."""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

import pyarrow as pa

from fogline.errors import FoglineError
from fogline.process.loop_calls import on_thread
from fogline_cloud.api.problems import Problem, not_at_present

MAX_WAITING: Final = 16
"""Questions that wait for their turn. Further ones get 503."""
LIMIT_S: Final = 20.0
"""Time that one question may take. Then its reader is asked for a smaller one."""
T = TypeVar("T")


class OneThread:
    """A thread at a time, which does not keep the process from its end. `what`: what it reads, for people. Used on the loop."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._turn = asyncio.Lock()
        self._waiting = 0

    async def ask(self, question: Callable[[], T]) -> T:
        """Return the answer to a question, which runs on the thread. Raises `Problem` (503).

        Safe to cancel: the next question waits for the end of this one all the same.
        """
        if self._waiting >= MAX_WAITING:
            raise not_at_present(f"too many questions to {self._what} wait")
        self._waiting += 1
        task = asyncio.ensure_future(self._in_turn(question))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            return await asyncio.shield(task)
        except FoglineError as error:
            raise Problem(503, f"{self._what} cannot be read: {error}") from None
        except (pa.ArrowException, OSError) as error:  # a file that maintenance has just removed
            raise not_at_present(f"{self._what} cannot be read: {error}") from None

    async def _in_turn(self, question: Callable[[], T]) -> T:
        try:
            async with self._turn:
                return await on_thread(f"console {self._what}", question)
        finally:
            self._waiting -= 1


def within_limit(rows: Iterable[T]) -> Iterator[T]:
    """Yield rows until `LIMIT_S` are over. Raises `Problem` (503) then."""
    until_s = time.monotonic() + LIMIT_S
    for each in rows:
        if time.monotonic() > until_s:
            raise Problem(503, f"this takes more than {LIMIT_S:.0f} s: ask for less")
        yield each
