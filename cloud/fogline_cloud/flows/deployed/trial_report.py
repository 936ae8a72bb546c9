"""What the trial of a deployed parser showed, and when a flow goes back to the former one. Pure."""

from collections.abc import Iterable

import msgspec

from fogline_cloud.flows.deployed.parser_set import Digest

TRIAL_EVENTS = 1000
"""Number of events after which a new parser is compared no more."""
TOLERATED_SHARE = 0.01
"""Share of the events of a trial that the new parser may leave to the former one."""


class TrialReport(msgspec.Struct, frozen=True):
    """What a task, or several, saw of one deployed parser. `left`: events that only the former one read. `why`: of the first.

    `harmed`: it ended its process, or took too much memory, with an event that the former one reads. `failure`: why it could
    not be used at all.
    """

    name: str
    digest: Digest
    events: int = 0
    left: int = 0
    harmed: bool = False
    why: str = ""
    failure: str = ""

    def plus(self, other: "TrialReport") -> "TrialReport":
        """Return both reports as one."""
        return TrialReport(
            self.name,
            self.digest,
            self.events + other.events,
            self.left + other.left,
            self.harmed or other.harmed,
            self.why or other.why,
            self.failure or other.failure,
        )


def is_refuted(report: TrialReport) -> bool:
    """Return True if the flow must go back to the former parser.

    That is so if the new one cannot be loaded, ends its process or takes too much memory where the former one does not, or
    leaves more than one in a hundred events of its trial to the former one.
    """
    return bool(report.failure) or report.harmed or report.left > report.events * TOLERATED_SHARE


def summed(reports: Iterable[TrialReport]) -> list[TrialReport]:
    """Return one report for each parser."""
    found: dict[tuple[str, Digest], TrialReport] = {}
    for each in reports:
        key = each.name, each.digest
        found[key] = found[key].plus(each) if key in found else each
    return list(found.values())
