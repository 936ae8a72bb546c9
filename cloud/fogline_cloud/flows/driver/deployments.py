"""The deployed parsers of a running flow: takes new ones between two micro-batches, and goes back from those that fail."""

import logging
from collections.abc import Iterable
from time import monotonic

import msgspec

from fogline.errors import Misconfigured, Poison, Unreachable
from fogline_cloud.flows.deployed.parser_log import ParserLog
from fogline_cloud.flows.deployed.parser_set import Change, DeployedParser, ParserSet, without_trial
from fogline_cloud.flows.deployed.trial_report import TRIAL_EVENTS, TrialReport, is_refuted, summed
from fogline_cloud.flows.deployed.unpacked import WrongFile
from fogline_cloud.flows.deployed.wheel import read_wheel
from fogline_cloud.store.options import is_stored

LOOK_S = 3.0
"""Time between two looks at the log in an object store. A folder is looked at before each micro-batch."""

log = logging.getLogger(__name__)


class Deployments:
    """Decides which deployed parsers a micro-batch gets. `who`: the flow, in entries of the log. `known`: the set at the start.

    Used by one thread. If the store is away, the former set goes on.
    """

    def __init__(self, parsers: ParserLog, who: str, known: ParserSet) -> None:
        self._log = parsers
        self._who = who
        self._interval_s = LOOK_S if is_stored(parsers.place) else 0.0
        self._looked_s = -LOOK_S
        self._refused: set[tuple[str, int]] = set()  # name, and number of the entry
        self._trials: dict[tuple[str, int], TrialReport] = {}
        self._returned: list[str] = []
        self._set = ParserSet()
        self._take(known)

    def current(self) -> ParserSet:
        """Return the set for the next micro-batch."""
        if monotonic() - self._looked_s >= self._interval_s:
            try:
                newest = self._log.newer(self._set.number)
                if newest is not None:
                    log.info("parser %s: %s by %s, entry %d", newest.name, newest.change, newest.who, newest.number)
                    self._take(newest.set)
                self._looked_s = monotonic()
            except (Misconfigured, Unreachable) as error:
                log.warning("no look at deployed parsers: %s", error)
        return ParserSet(self._set.number, {name: self._effective(name, each) for name, each in self._set.parsers.items()})

    def landed(self, reports: Iterable[TrialReport]) -> None:
        """Take what the tasks of a micro-batch saw, and go back from parsers that failed."""
        for each in summed(reports):
            wanted = self._set.parsers.get(each.name)
            if wanted is None or wanted.digest != each.digest or (each.name, wanted.since) in self._refused:
                continue
            key = each.name, wanted.since
            report = self._trials[key] = self._trials[key].plus(each) if key in self._trials else each
            if is_refuted(report):
                self._go_back(each.name, wanted, reason_of(report))

    def take_returned(self) -> list[str]:
        """Return the names of parsers from which the flow has gone back since the last call."""
        found, self._returned = self._returned, []
        return found

    def _take(self, given: ParserSet) -> None:
        """Take a set, and check the files that are new in it. Raises `Misconfigured` and `Unreachable`."""
        wrong: list[tuple[str, DeployedParser, str]] = []
        for name, each in given.parsers.items():
            if each.digest and self._set.parsers.get(name) != each:
                try:
                    read_wheel(self._log.file(each.digest))
                except (Poison, WrongFile) as error:
                    wrong.append((name, each, str(error)))
        self._set = given
        for name, each, why in wrong:
            self._go_back(name, each, why)

    def _effective(self, name: str, wanted: DeployedParser) -> DeployedParser:
        key = name, wanted.since
        if key in self._refused:
            return msgspec.structs.replace(wanted, digest=wanted.former or "", former=None)
        if key in self._trials and self._trials[key].events >= TRIAL_EVENTS:
            return msgspec.structs.replace(wanted, former=None)
        return wanted

    def _go_back(self, name: str, failed: DeployedParser, why: str) -> None:
        """Use the former parser from now on, in this flow even if the log cannot be written."""
        self._refused.add((name, failed.since))
        self._returned.append(name)
        log.error("parser %s %s failed, the flow goes back to the former one: %s", name, failed.digest[:12], why)

        def following(now: ParserSet) -> ParserSet:
            is_same = name in now.parsers and now.parsers[name].since == failed.since
            return without_trial(now, name, failed.former or "") if is_same else now

        try:
            self._log.append(Change.RETURN, name, self._who, why, following)
        except (Misconfigured, Unreachable) as error:
            log.warning("that the flow went back is not in the log of deployments: %s", error)


def reason_of(report: TrialReport) -> str:
    """Return why a parser is refuted, in a sentence."""
    if report.failure:
        return report.failure
    return f"of {report.events:,} events only the former parser reads {report.left:,}; the first: {report.why[:500]}"
