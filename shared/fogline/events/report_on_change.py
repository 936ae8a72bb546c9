"""Report-on-change and minimum intervals: decides which arrivals become events. The others count as `filtered`. Pure."""

import msgspec


class ReportPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The filter of one channel of a device."""

    min_interval_s: float = 0.0  # shortest time between two events
    on_change: bool = False  # discard an arrival that says the same as the last event
    max_interval_s: float | None = None  # except once in this time (None: never)
    pause_s: float | None = None  # and except after this time without a repetition (None: never)


class Reported(msgspec.Struct, frozen=True):
    """The last event of a channel: its time and that of its last repetition, on a monotonic clock."""

    at_ms: int
    repeated_ms: int = 0


def is_news(report: ReportPolicy, last: Reported | None, now_ms: int, *, changed: bool) -> bool:
    """Return True if an arrival becomes an event. If `last` is after `now_ms`, the interval is over.

    `changed`: it says something else than the last event.
    """
    if last is None:
        return True
    passed_s = (now_ms - last.at_ms) / 1000
    if passed_s < 0:
        return not report.on_change or changed
    if passed_s < report.min_interval_s:
        return False
    if report.on_change and not changed:
        paused_s = (now_ms - max(last.at_ms, last.repeated_ms)) / 1000
        return _is_over(report.max_interval_s, passed_s) or _is_over(report.pause_s, paused_s)
    return True


def _is_over(limit_s: float | None, passed_s: float) -> bool:
    return limit_s is not None and passed_s >= limit_s
