"""A new parser beside the former one: an event that the new one does not read is given to the former one too.

So no event is lost by a bad deployment: if the former one reads the event, its result counts, and the row names its digest.
"""

from collections import Counter
from collections.abc import Sequence

from fogline_cloud.flows.deployed.loaded_parsers import LoadedParsers, former_name
from fogline_cloud.flows.deployed.parser_set import Digest
from fogline_cloud.flows.deployed.trial_report import TrialReport, summed
from fogline_cloud.flows.sandbox.child import Asked
from fogline_cloud.flows.sandbox.parser_runner import KILLED, NO_MEMORY, ParseResult
from fogline_cloud.flows.sandbox.task_parsers import TaskParsers
from fogline_cloud.flows.tables.schema import EventOutcome

READ = (EventOutcome.OK, EventOutcome.SKIP)
"""Outcomes of an event that a parser reads."""
HARM = (KILLED, NO_MEMORY)
"""Reasons of an event that harmed the parser's process."""


class TrialParsers:
    """The parsers of one task, those on trial with the former one behind them."""

    def __init__(self, parsers: TaskParsers, loaded: LoadedParsers) -> None:
        self._parsers = parsers
        self._loaded = loaded
        self._reports: list[TrialReport] = []

    @property
    def killers(self) -> set[str]:
        """The parsers that ended their process."""
        return self._parsers.killers

    def results(self, asked: Sequence[Asked]) -> list[tuple[ParseResult, Digest | None]]:
        """Parse events. Returns each result, and the digest of the parser that gave it; `None` for an installed one."""
        loaded = self._loaded
        results = [
            (each, loaded.digests.get(name)) for (name, _), each in zip(asked, self._parsers.results(asked), strict=True)
        ]
        if not loaded.trials:
            return results
        doubted = [index for index, (name, _) in enumerate(asked) if self._is_doubted(name, results[index][0])]
        again = [(former_name(asked[index][0]), asked[index][1]) for index in doubted]
        for index, (former, _), result in zip(doubted, again, self._parsers.results(again), strict=True):
            if result.outcome in READ:
                name, refused = asked[index][0], results[index][0]
                digest = loaded.trials[name].digest
                why = f"{refused.outcome} {refused.reason}: {refused.detail or ''}"
                self._reports.append(TrialReport(name, digest, 0, 1, refused.reason in HARM, why))
                results[index] = result, loaded.digests.get(former)
        events = Counter(name for name, _ in asked if name in loaded.trials)
        counts = [TrialReport(name, loaded.trials[name].digest, count) for name, count in events.items()]
        self._reports = summed([*self._reports, *counts])
        return results

    def _is_doubted(self, name: str, result: ParseResult) -> bool:
        trial = self._loaded.trials.get(name)
        if trial is None or result.outcome in READ:
            return False
        return not trial.accept_dead or result.outcome is EventOutcome.SLOW or result.reason in HARM

    def reports(self) -> list[TrialReport]:
        """Return what was seen of deployed parsers."""
        return summed([*self._loaded.failures, *self._reports])
