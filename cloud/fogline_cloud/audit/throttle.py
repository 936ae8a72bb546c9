"""Limits the audit records that one peer may cause, so that no peer can fill the topic. Pure; memory is bounded."""

from collections import OrderedDict
from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from fogline.process.rates import MAX_DEVICES, DeviceRates
from fogline_cloud.audit.record import AuditRecord

BURST = 20
"""Records that one peer may cause in a burst."""
RATE_S = 1 / 60
"""Records per second that one peer may cause in the long run."""


class AuditThrottle:
    """Selects the records to write. The next one about the same peer counts those that were left out.

    All peers that have not proven their names share one limit.
    """

    def __init__(self) -> None:
        self._rates = DeviceRates(RATE_S, BURST)
        self._omitted: OrderedDict[str, int] = OrderedDict()

    def select(self, records: Iterable[AuditRecord], now_s: float) -> Iterator[AuditRecord]:
        """Yield the records that may be written at `now_s` (monotonic seconds)."""
        for record in records:
            if self._rates.bucket(record.who, now_s).take(now_s):
                omitted = self._omitted.pop(record.who, 0)
                yield replace(record, why=f"{record.why} ({omitted} more before)") if omitted else record
                continue
            self._omitted[record.who] = self._omitted.get(record.who, 0) + 1
            if len(self._omitted) > MAX_DEVICES:
                self._omitted.popitem(last=False)
