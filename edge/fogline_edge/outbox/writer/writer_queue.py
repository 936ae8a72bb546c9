"""The items of the writer's queue, calls from the event loop, and the callbacks by which the writer reports to its owner."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fogline.commands.command import Command
from fogline.errors import Misconfigured
from fogline.process.loop_calls import call_soon
from fogline_edge.outbox.rows.streams import EventRecord
from fogline_edge.outbox.writer.ingest import Act, Waiting
from fogline_edge.outbox.writer.store import OutboxStore
from fogline_edge.rules.message import RuleMessage

T = TypeVar("T")
IGNORE: Callable[[object], None] = lambda _: None  # noqa: E731 - a callback for what nobody waits for
FAILED = object()
"""The result of an `Act` that raised. Its `done` is not called."""


@dataclass(frozen=True, slots=True)
class Call:
    """A function that runs with the database. `done` or `failed` is called on the writer's thread."""

    run: Callable[[OutboxStore], Any]
    done: Callable[[Any], None]
    failed: Callable[[BaseException], None]


@dataclass(slots=True)
class Settlement:
    """Progress of the uplink, by stream.

    `upto`: highest accepted sequence; `sent`: number of events that were sent since the last one.
    """

    upto: dict[str, int] = field(default_factory=dict)
    sent: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MoreWork:
    """The writer's own reminder that it has more housekeeping to do."""


WorkItem = list[Waiting | Act] | Settlement | Call | MoreWork | None
Results = list[tuple[Waiting | Act, Any]]
NewRows = list[tuple[str, list[EventRecord] | None]]


@dataclass(frozen=True, slots=True)
class WriterCallbacks:
    """The writer's reports. Each is called on the writer's thread.

    `committed`: items that were committed, with their results; new rows by stream (see `OutboxStore.new_rows`); the number of
    groups that were taken from the queue. `commanded`, `messaged`: commands and messages of rules, once they are committed.
    `full`: the outbox became full, or no longer is. `fatal`: the file failed. `closing`: the thread ends; the failure, if one
    ends it.
    """

    committed: Callable[[Results, NewRows, int], None]
    commanded: Callable[[list[Command]], None]
    messaged: Callable[[list[RuleMessage]], None]
    full: Callable[[bool], None]
    fatal: Callable[[str], None]
    closing: Callable[[Exception | None], None]


class LoopCalls:
    """Runs functions on the writer's thread and returns their results to the loop.

    `submit`: puts an item into the writer's queue. `failed` completes when the writer fails; no call completes after that.
    """

    def __init__(self, submit: Callable[[WorkItem], None]) -> None:
        self.submit = submit
        self._loop = asyncio.get_running_loop()
        self.failed: asyncio.Future[str] = self._loop.create_future()

    async def call(self, run: Callable[[OutboxStore], T]) -> T:
        """Return the result of `run` on the writer's thread, or raise its error. Raises `Misconfigured` if the outbox fails."""
        future: asyncio.Future[T] = self._loop.create_future()
        self.submit(
            Call(
                run,
                done=lambda result: self.call_on_loop(_resolve, future, result),
                failed=lambda error: self.call_on_loop(_fail, future, error),
            )
        )
        waited: list[asyncio.Future[Any]] = [future, self.failed]
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        if not future.done():
            future.cancel()
            raise Misconfigured(self.failed.result())
        return future.result()

    def call_on_loop(self, call: Callable[..., None], *arguments: object) -> None:
        """Call `call` on the loop. Any thread may use it."""
        call_soon(self._loop, call, *arguments)


def _resolve(future: "asyncio.Future[T]", result: T) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: "asyncio.Future[T]", error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
