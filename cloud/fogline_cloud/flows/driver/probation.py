"""Parsers that have ended their process: they run in a child process until they have done no harm for some micro-batches."""

import logging
from collections import Counter
from collections.abc import Collection

FIRST_TERM = 1
"""Number of micro-batches without harm after which a parser runs in its worker again. Each further offence doubles it."""
MOST_OFFENCES = 13
"""Number of offences after which the term does not grow any more."""

log = logging.getLogger(__name__)


class Probation:
    """The parsers on probation. One process of the flow remembers them."""

    def __init__(self) -> None:
        self._left: dict[str, int] = {}  # micro-batches by parser
        self._offences: Counter[str] = Counter()

    @property
    def parsers(self) -> frozenset[str]:
        """The parsers that must run in a child now."""
        return frozenset(self._left)

    def landed(self, killers: Collection[str]) -> None:
        """Count a micro-batch that has landed. `killers`: parsers that ended a process in it."""
        for name in self.parsers - {*killers}:
            self._left[name] -= 1
            if not self._left[name]:
                del self._left[name]
                log.info("parser %s does not run in a child process any more", name)
        for name in sorted(killers):
            self._offences[name] += 1
            self._left[name] = FIRST_TERM << min(self._offences[name], MOST_OFFENCES) - 1
            log.warning("parser %s ended its process: it runs in a child for %d micro-batches", name, self._left[name])
