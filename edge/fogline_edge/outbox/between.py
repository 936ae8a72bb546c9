"""Between the loop and the writer's thread: what one asks of the other, and how it gets the answer."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, TypeVar

from fogline.errors import Misconfigured
from fogline_edge.outbox.writer import Writer
from fogline_edge.outbox.writer_queue import Call

T = TypeVar("T")


class Between:
    """Used on the loop, but for `tell`. `failed` is done when the writer has failed: then nobody is answered any more."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.failed: asyncio.Future[str] = self._loop.create_future()

    async def call(self, writer: Writer, run: Callable[[Writer], T]) -> T:
        """What `run` returns or raises on the writer's thread. Raises `Misconfigured` if the outbox fails first."""
        future: asyncio.Future[T] = self._loop.create_future()
        writer.submit(
            Call(
                run,
                done=lambda result: self.tell(_resolve, future, result),
                failed=lambda error: self.tell(_fail, future, error),
            )
        )
        waited: list[asyncio.Future[Any]] = [future, self.failed]
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        if not future.done():
            future.cancel()
            raise Misconfigured(self.failed.result())
        return future.result()

    def tell(self, call: Callable[..., None], *arguments: object) -> None:
        """Call `call` on the loop; may be used on any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(call, *arguments)


def _resolve(future: "asyncio.Future[T]", result: T) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: "asyncio.Future[T]", error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
