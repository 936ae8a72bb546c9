"""When what a device says is worth an event: report-on-change and least intervals. Pure.

Some devices repeat themselves: a Bluetooth advertiser does ten times a second. A `Report` says what of it is news; what is
none is counted as `filtered`, and gets no sequence.
"""

import msgspec


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """How often one channel of a device is reported.

    `min_interval_s`: nothing is sooner after the last event. `on_change`: nothing that says the same as the last event is,
    but for once in `max_interval_s`, if that is given.
    """

    min_interval_s: float = 0.0
    on_change: bool = False
    max_interval_s: float | None = None


class Reported(msgspec.Struct, frozen=True):
    """The last event of a channel: its payload's digest, and when it came, on a clock that never goes back."""

    digest: bytes
    at_ms: int


def is_news(report: Report, last: Reported | None, payload: bytes, now_ms: int) -> bool:
    """Whether what came is to be an event. `payload`: its digest.

    A `last` that lies ahead of `now_ms` came before a restart whose length nobody knows: long enough ago.
    """
    if last is None:
        return True
    passed_s = (now_ms - last.at_ms) / 1000
    if passed_s < 0:
        return not report.on_change or payload != last.digest
    if passed_s < report.min_interval_s:
        return False
    if report.on_change and payload == last.digest:
        return report.max_interval_s is not None and passed_s >= report.max_interval_s
    return True
