"""Limits the audit lines about refused replies, so that no gateway can fill the audit topic. Pure.

The gap records of refused replies are not limited: each refused event keeps its own.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from fogline.rates import MAX_DEVICES, DeviceRates
from fogline_cloud.commands.record import Audit

BURST = 20
"""Audit lines about one gateway that may follow at once."""
RATE_S = 1 / 60
"""Audit lines about one gateway in a second, in the long run."""


class RefusalAudits:
    """Selects the audit lines to write, by gateway. The first line that follows omitted ones says how many there were.

    At most `fogline.rates.MAX_DEVICES` gateways are remembered. The oldest is forgotten, and its count with it.
    """

    def __init__(self) -> None:
        self._rates = DeviceRates(RATE_S, BURST)
        self._omitted: OrderedDict[str, int] = OrderedDict()

    def select(self, audits: Iterable[Audit], now_s: float) -> Iterator[Audit]:
        """Yield the lines that may be written at `now_s` (monotonic seconds)."""
        for audit in audits:
            if self._rates.bucket(audit.gateway, now_s).take(now_s):
                omitted = self._omitted.pop(audit.gateway, 0)
                yield replace(audit, why=f"{audit.why} ({omitted} more refused before)") if omitted else audit
                continue
            self._omitted[audit.gateway] = self._omitted.get(audit.gateway, 0) + 1
            if len(self._omitted) > MAX_DEVICES:
                self._omitted.popitem(last=False)
