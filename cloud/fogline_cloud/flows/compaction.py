"""When the small files of finished batches are packed, and what happens if that fails: the flow goes on. No Spark is needed."""

import logging
from collections.abc import Callable, Sequence
from datetime import date

log = logging.getLogger(__name__)

COMPACT_EVERY = 100
"""After so many batches the small files that they wrote are packed."""
RETRY_AFTER = 10
"""After so many batches a compaction that failed is tried again."""


class Compaction:
    """Packs the days that batches wrote, every `COMPACT_EVERY` batches. `pack` packs the days from the first to the last.

    A failure is logged and counted in `failures`; its days are kept, and packed `RETRY_AFTER` batches later.
    """

    def __init__(self, pack: Callable[[tuple[date, date]], None]) -> None:
        self.failures = 0
        self._pack = pack
        self._owed: tuple[date, date] | None = None

    def after(self, batch: int, days: Sequence[date]) -> None:
        """Pack if it is time: after this batch, which wrote rows of these days. Never raises because packing failed."""
        is_due = batch % COMPACT_EVERY == COMPACT_EVERY - 1
        if not is_due and (self._owed is None or batch % RETRY_AFTER != RETRY_AFTER - 1):
            return
        wanted = [*(self._owed or ()), *(days if is_due else ())]
        if not wanted:
            return
        span = (min(wanted), max(wanted))
        try:
            self._pack(span)
        except Exception as error:  # noqa: BLE001 - Spark raises anything; small files are no reason to stop the stream
            self.failures += 1
            self._owed = span
            first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
            log.warning(
                "compaction of %s to %s failed (%d failures): %s: %s; it is tried again after %d batches",
                *span,
                self.failures,
                type(error).__name__,
                first[:300],
                RETRY_AFTER,
            )
        else:
            self._owed = None
