"""Rows of `events` that differ in everything that table `fleet` counts."""

from datetime import UTC, date, datetime, timedelta

from cloud.fleet.counted_events import CountedEvents

FIRST = date(2026, 1, 5)
OWN_REPORT = "command 5f0c: EXPIRED 408"


def event(n: int) -> dict:
    """Return the columns of the event with this number: everything that the count looks at differs between some of them."""
    ingested = datetime(2026, 1, 5, 12, tzinfo=UTC) + timedelta(minutes=n)
    outcome = ("ok", "ok", "skip", "slow", "dead", "duplicate", "gap", "statement")[n % 8]
    return {
        "outcome": outcome,
        "reason": ("reply", "notice", None)[n % 3] if outcome == "skip" else None,
        "detail": (OWN_REPORT, "command 5f0d: SUCCEEDED 200")[n % 2] if outcome == "skip" else None,
        "recordedtime": None if n % 11 == 10 else ingested - timedelta(seconds=(0, 3, 90, 4000, 300_000)[n % 5] - n % 7),
        "timequality": ("synced", "corrected", "unsynced")[n % 3],
        "time": None if n % 2 else ingested + timedelta(minutes=(0, 9, -20_000)[n % 3]),
        "size_bytes": n * 37 % 5000,
        "properties": [("firmware", f"1.{n % 2}")] if n % 3 else None,
        "gateway": (f"gw-{n % 2}", "gw-0", None)[n % 3],
        "lane": ("telemetry", "alarm")[n % 2],
        "adapter": "mqtt",
        "parser": ("json", None)[n % 2],
        "device": "gw-0" if n % 13 == 12 else f"d-{n % 4}",
    }


def on(day: date):
    """Return the rows of a day: they came in then."""

    def row(n: int) -> dict:
        found = event(n)
        shift = timedelta(days=(day - FIRST).days)
        moved = {name: found[name] and found[name] + shift for name in ("recordedtime", "time")}
        return found | moved | {"ingested": datetime(day.year, day.month, day.day, 12, tzinfo=UTC) + timedelta(seconds=n)}

    return row


def append(counted: CountedEvents, day: date, count: int = 7) -> None:
    counted.events.append(count, day, on(day))
