"""Runs the parsers of one task: healthy ones in this process, dangerous ones in a child."""

from collections.abc import Collection, Mapping, Sequence

from fogline_cloud.flows.parsers import Parser, wants_isolation
from fogline_cloud.flows.sandbox.guard import Guard
from fogline_cloud.flows.sandbox.isolation import Asked, Isolation
from fogline_cloud.flows.sandbox.parser_runner import NO_MEMORY, ParseResult, ParserRunner
from fogline_cloud.flows.sandbox.time_limit import TimeLimit


class CarefulRunner:
    """Runs the parsers of one task. `suspects`: parsers to run in a child; `suspect_all`: every one.

    `memory_bytes`: see `Guard`. Must be used in the main thread, within the context of `limit`.
    """

    def __init__(
        self,
        parsers: Mapping[str, Parser],
        limit: TimeLimit,
        memory_bytes: int,
        *,
        suspects: Collection[str] = (),
        suspect_all: bool = False,
    ) -> None:
        self._limit = limit
        self._guard = Guard(limit.limit_s, memory_bytes)
        self._runner = ParserRunner(parsers, limit, self._guard.watch)
        self._isolation = Isolation(self._runner.run, self._guard)
        asking = {name for name, parser in parsers.items() if wants_isolation(parser)}
        self._isolated = set(parsers) if suspect_all else {*suspects, *asking}

    @property
    def killers(self) -> set[str]:
        """The parsers that ended a child."""
        return self._isolation.killers

    def results(self, asked: Sequence[Asked]) -> list[ParseResult]:
        """Parse events, and return their results in the same order.

        An event that gets no memory here is parsed again in a child, because an earlier one may have taken the memory.
        """
        with self._guard:
            found = [None if name in self._isolated else self._runner.run(name, event) for name, event in asked]
        self._limit.rest()
        unsettled = [index for index, result in enumerate(found) if result is None or result.reason == NO_MEMORY]
        for index, result in zip(unsettled, self._isolation.results([asked[index] for index in unsettled]), strict=True):
            self._runner.learn(*asked[index], result)
            found[index] = result
        return [result for result in found if result is not None]
