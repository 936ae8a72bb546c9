"""Runs the parsers of one task: healthy ones in this process, dangerous ones in a child."""

from collections.abc import Collection, Mapping, Sequence

from fogline.errors import Poison
from fogline_cloud.flows.parsers import MAX_READINGS, Parser, Retry, wants_isolation
from fogline_cloud.flows.sandbox.child import Asked, run_in_child
from fogline_cloud.flows.sandbox.memory_limit import memory_limit
from fogline_cloud.flows.sandbox.parser_runner import NO_MEMORY, ParseResult, ParserRunner
from fogline_cloud.flows.sandbox.time_limit import TimeLimit


class TaskParsers:
    """The parsers of one task. `memory_bytes`: memory that they may take. `in_child`: the names of those that run in a child.

    `most`: largest number of readings of one event.
    Must be used in the main thread, within the context of `limit`. `killers`: the parsers that ended a child.
    """

    def __init__(
        self,
        parsers: Mapping[str, Parser],
        limit: TimeLimit,
        memory_bytes: int,
        in_child: Collection[str],
        most: int = MAX_READINGS,
    ) -> None:
        self.killers: set[str] = set()
        self._runner = ParserRunner(parsers, limit, most)
        self._limit = limit
        self._memory_bytes = memory_bytes
        self._in_child = {*in_child, *(name for name, parser in parsers.items() if wants_isolation(parser))}

    def results(self, asked: Sequence[Asked]) -> list[ParseResult]:
        """Parse events, and return their results in the same order.

        An event that gets no memory here is parsed again in a child, because an earlier one may have taken the memory. A child
        cannot use the store of large bodies, so it gets the body of one event with the event.
        """
        found: list[ParseResult | None] = []
        with memory_limit(self._memory_bytes):
            for name, event in asked:
                result = None if name in self._in_child else self._runner.run(name, event)
                found.append(None if result is None or result.reason == NO_MEMORY else result)
        self._limit.rest()
        while left := [index for index, result in enumerate(found) if result is None]:
            events = [asked[index] for index in left]
            count = next((index for index, (_, event) in enumerate(events) if event.dataref is not None), len(events))
            try:
                events = events[:count] or [self._runner.with_body(*events[0])]
            except (Poison, Retry) as error:
                found[left[0]] = self._runner.failed(events[0][0], error)
                continue
            results, is_killer = run_in_child(
                self._runner.run, events, silence_s=self._limit.silence_s, memory_bytes=self._memory_bytes
            )
            if is_killer:
                self.killers.add(events[len(results) - 1][0])
            for index, result in zip(left, results, strict=False):
                found[index] = result
                if result.reason is not None:
                    self._runner.learn(*asked[index], result)
        return [result for result in found if result is not None]
