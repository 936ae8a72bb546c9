"""Bounds the time that a task loses to parsers that overrun, without harm to the events of healthy devices. Pure.

A device that has used up `OVERRUNS_OF_DEVICE` time limits of a parser is not asked again in this task. If many devices overrun,
the limit shrinks for their content type: a healthy event needs a small share of it, so every healthy event is still parsed.
"""

from collections import Counter

from fogline.events.event import Event
from fogline_cloud.flows.parsers import essence

OVERRUNS_OF_DEVICE = 3
"""Number of time limits that a device may use up in a task before a parser is not called for it again."""
OVERRUNS_OF_TYPE = 30
"""Number of overruns of a parser for one content type in a task, above which the time limit shrinks."""
TOLERATED_SHARE = 0.01
"""Share of the calls that may overrun before the time limit shrinks, if that is more than `OVERRUNS_OF_TYPE`."""
LEAST_SHARE = 0.005
"""Smallest share of the time limit that a call gets. A parser of ours takes 0.00003 s."""


class OverrunBudget:
    """Overruns of one task. Without any, `share` costs next to nothing."""

    def __init__(self) -> None:
        self._of_type: Counter[tuple[str, str]] = Counter()
        self._calls: Counter[tuple[str, str]] = Counter()  # since the first overrun
        self._limits_of_device: dict[tuple[str, str], float] = {}  # time limits that were used up

    def share(self, parser: str, event: Event) -> float:
        """Return the share of the time limit for the next call. 0: the parser must not be called for this device."""
        if not self._limits_of_device:
            return 1.0
        if self._limits_of_device.get((parser, event.device), 0.0) >= OVERRUNS_OF_DEVICE:
            return 0.0
        kind = (parser, essence(event.content_type))
        self._calls[kind] += 1
        tolerated = max(OVERRUNS_OF_TYPE, self._calls[kind] * TOLERATED_SHARE)
        return max(LEAST_SHARE, min(1.0, tolerated / max(1, self._of_type[kind])))

    def overran(self, parser: str, event: Event, share: float) -> None:
        """Count a call that took this share of the time limit and did not finish, or killed its process."""
        device = (parser, event.device)
        self._limits_of_device[device] = self._limits_of_device.get(device, 0.0) + share
        self._of_type[parser, essence(event.content_type)] += 1
