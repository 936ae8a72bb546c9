"""Last-seen times of what advertisers repeat, in memory: a repeated advertisement then costs no write.

An advertiser repeats one advertisement, or alternates between two, until something changes. As long as it repeats without a
pause, the copies are duplicates, however old the first one is. After a pause, and after a restart of the gateway, the time of
the first copy counts instead, because a device that restarts with each event and with the same count is seen with pauses.
"""

from typing import TypeVar

from msgspec.structs import replace

from fogline.events.event import Arrival
from fogline.events.identity import Counter
from fogline_edge.outbox.memory.recognition import report_key
from fogline_edge.outbox.rows.memory_entry import CounterValue, MemoryEntry

PAUSE_S = 15
MAX_SEEN = 4096


class LastSeen:
    """Last-seen times of arrivals with a `report`, by counter value, and by channel. Used on the writer's thread."""

    def __init__(self) -> None:
        self._last_s: dict[tuple[bytes, bytes, Counter], int] = {}
        self._repeated_ms: dict[bytes, int] = {}

    def note(self, arrival: Arrival, payload: bytes, age_ms: int) -> None:
        """Note that the arrival is seen now. `payload`: digest of the payload."""
        if isinstance(arrival.evidence, Counter):
            _note(self._last_s, (report_key(arrival), payload, arrival.evidence), age_ms // 1000)
        if arrival.report is not None and arrival.report.pause_s is not None:
            _note(self._repeated_ms, report_key(arrival), age_ms)

    def repeated_ms(self, arrival: Arrival) -> int:
        """Return the time at which the last report of this channel was repeated, 0 if that is not known."""
        return self._repeated_ms.get(report_key(arrival), 0)

    def renew(self, trace: MemoryEntry, arrival: Arrival, age_s: int) -> MemoryEntry:
        """Return the entry with each recent value as old as its last copy, if there was no pause since that."""
        counter = arrival.evidence
        if not trace.recent or not isinstance(counter, Counter):
            return trace
        channel = report_key(arrival)

        def renewed(each: CounterValue) -> CounterValue:
            value = Counter(each.value % (1 << counter.width_bits), counter.width_bits)
            last_s = self._last_s.get((channel, each.digest, value))
            return each if last_s is None or age_s - last_s > PAUSE_S else replace(each, age_s=last_s)

        return replace(trace, recent=tuple(map(renewed, trace.recent)))


_K = TypeVar("_K")


def _note(times: dict[_K, int], key: _K, time: int) -> None:
    times.pop(key, None)
    times[key] = time
    if len(times) > MAX_SEEN:
        del times[next(iter(times))]
