"""When a device that repeats itself was heard last with each value of its counter: kept in memory, for it costs no write.

An advertiser says one thing as long as nothing else happens, or two in turn. As long as it does so without a pause, it is what
was stored, however long ago that was. After a pause, and after a restart of the gateway, the time of the first copy counts: a
device that begins anew with each event, and with the same count, is heard with pauses.
"""

from msgspec.structs import replace

from fogline.event import Arrival
from fogline.identity import Counter
from fogline_edge.outbox.recognition import Count, Trace, report_key

PAUSE_S = 15
MAX_HEARD = 4096


class Heard:
    """Of arrivals with a `report` and a counter. Used on the writer's thread."""

    def __init__(self) -> None:
        self._last_s: dict[tuple[bytes, bytes, Counter], int] = {}

    def note(self, arrival: Arrival, payload: bytes, age_s: int) -> None:
        """It is heard again now. `payload`: its digest."""
        if isinstance(arrival.evidence, Counter):
            key = (report_key(arrival), payload, arrival.evidence)
            self._last_s.pop(key, None)
            self._last_s[key] = age_s
            if len(self._last_s) > MAX_HEARD:
                del self._last_s[next(iter(self._last_s))]

    def renew(self, trace: Trace, arrival: Arrival, age_s: int) -> Trace:
        """What is remembered of the counter, each value as old as it was when last heard, if there was no pause since."""
        counter = arrival.evidence
        if not trace.recent or not isinstance(counter, Counter):
            return trace
        channel = report_key(arrival)

        def renewed(each: Count) -> Count:
            value = Counter(each.value % (1 << counter.width_bits), counter.width_bits)
            last_s = self._last_s.get((channel, each.digest, value))
            return each if last_s is None or age_s - last_s > PAUSE_S else replace(each, age_s=last_s)

        return replace(trace, recent=tuple(map(renewed, trace.recent)))
