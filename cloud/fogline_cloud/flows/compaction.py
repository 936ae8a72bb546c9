"""Schedule of compactions: small files of finished batches are packed into large ones. No Spark is needed."""

import logging
from collections.abc import Callable, Sequence
from datetime import date

log = logging.getLogger(__name__)

COMPACT_EVERY = 100
"""Number of batches between two compactions."""
RETRY_AFTER = 10
"""Number of batches after which a failed compaction is tried again."""


class Compaction:
    """Lets `pack` compact the files of recent days (first, last) every `COMPACT_EVERY` batches; retries after `RETRY_AFTER`."""

    def __init__(self, pack: Callable[[tuple[date, date]], None]) -> None:
        self.failures = 0
        self._pack = pack
        self._owed: tuple[date, date] | None = None

    def after(self, batch: int, days: Sequence[date]) -> None:
        """Compact if it is due after this batch, which wrote rows of these days. Never raises because a compaction failed."""
        is_due = batch % COMPACT_EVERY == COMPACT_EVERY - 1
        if not is_due and (self._owed is None or batch % RETRY_AFTER != RETRY_AFTER - 1):
            return
        wanted = [*(self._owed or ()), *(days if is_due else ())]
        if not wanted:
            return
        span = (min(wanted), max(wanted))
        try:
            self._pack(span)
        except Exception as error:  # noqa: BLE001 - Spark may raise anything, and small files must not stop the flow
            self.failures += 1
            self._owed = span
            first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
            log.warning(
                "compaction of %s to %s failed (%d failures): %s: %s. Next try in %d batches.",
                *(*span, self.failures, type(error).__name__, first[:300], RETRY_AFTER),
            )
        else:
            self._owed = None
