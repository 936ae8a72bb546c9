"""Report-on-change and minimum intervals: decides which arrivals become events. The others count as `filtered`. Pure."""

import msgspec


class ReportPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The filter of one channel of a device."""

    min_interval_s: float = 0.0  # shortest time between two events
    on_change: bool = False  # discard an arrival that repeats the last event's payload
    max_interval_s: float | None = None  # except once in this time (None: never)
    pause_s: float | None = None  # and except after this time without a repetition (None: never)


class Reported(msgspec.Struct, frozen=True):
    """The last event of a channel: the digest of its payload, its time and that of its last repetition on a monotonic clock."""

    digest: bytes
    at_ms: int
    repeated_ms: int = 0


def is_news(report: ReportPolicy, last: Reported | None, payload: bytes, now_ms: int) -> bool:
    """Return True if an arrival becomes an event. `payload`: its digest. If `last` is after `now_ms`, the interval is over."""
    if last is None:
        return True
    passed_s = (now_ms - last.at_ms) / 1000
    if passed_s < 0:
        return not report.on_change or payload != last.digest
    if passed_s < report.min_interval_s:
        return False
    if report.on_change and payload == last.digest:
        paused_s = (now_ms - max(last.at_ms, last.repeated_ms)) / 1000
        return _is_over(report.max_interval_s, passed_s) or _is_over(report.pause_s, paused_s)
    return True


def _is_over(limit_s: float | None, passed_s: float) -> bool:
    return limit_s is not None and passed_s >= limit_s
