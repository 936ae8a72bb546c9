"""A thread that answers questions one after the other, so that pages take one CPU at most, however many are open."""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

import pyarrow as pa

from fogline.errors import FoglineError
from fogline_cloud.api.problems import Problem, not_at_present

MAX_WAITING: Final = 16
"""Questions that wait for their turn. Further ones get 503."""
LIMIT_S: Final = 20.0
"""Time that one question may take. Then its reader is asked for a smaller one."""
T = TypeVar("T")


class OneThread:
    """The thread. `what`: what it reads, for people. `close` it."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._thread = ThreadPoolExecutor(1, f"console {what}")
        self._waiting = 0

    async def ask(self, question: Callable[[], T]) -> T:
        """Return the answer to a question, which runs on the thread. Raises `Problem` (503)."""
        if self._waiting >= MAX_WAITING:
            raise not_at_present(f"too many questions to {self._what} wait")
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, question)
        except FoglineError as error:
            raise Problem(503, f"{self._what} cannot be read: {error}") from None
        except (pa.ArrowException, OSError) as error:  # a file that maintenance has just removed
            raise not_at_present(f"{self._what} cannot be read: {error}") from None
        finally:
            self._waiting -= 1

    def close(self) -> None:
        """Stop. A question under way goes on to its end."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def within_limit(rows: Iterable[T]) -> Iterator[T]:
    """Yield rows until `LIMIT_S` are over. Raises `Problem` (503) then."""
    until_s = time.monotonic() + LIMIT_S
    for each in rows:
        if time.monotonic() > until_s:
            raise Problem(503, f"this takes more than {LIMIT_S:.0f} s: ask for less")
        yield each
