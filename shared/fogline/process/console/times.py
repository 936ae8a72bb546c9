"""Times as people type them: a length of time, and a moment."""

import re
from datetime import UTC, date, datetime, time, timedelta

from fogline.errors import Misconfigured

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "": 1.0}


def seconds(option: str, text: str) -> float:
    """Return the seconds of a time like `500ms`, `30s`, `5m`, `2h`, `1d`. Raises `Misconfigured`, which names the option."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|)", text)
    if match is None or float(match[1]) <= 0:
        raise Misconfigured(f"{option} {text!r}: expected a time like 30s, 5m or 2h")
    return float(match[1]) * _UNITS[match[2]]


def moment(option: str, text: str, now: datetime) -> datetime:
    """Return the moment of `7d` (so long before `now`) or `2026-11-01T12:00:00Z`, in UTC. Raises `Misconfigured`."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        try:
            return now - timedelta(seconds=seconds(option, text))
        except (Misconfigured, OverflowError):
            raise Misconfigured(f"{option} {text!r}: expected a time like 7d, or a date like 2026-11-01") from None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def day(option: str, text: str, now: datetime) -> datetime:
    """Return the begin of a day in UTC: `today`, `yesterday` or `2026-11-27`. Raises `Misconfigured`."""
    today = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    named = {"today": today, "yesterday": today - timedelta(days=1)}
    if text in named:
        return named[text]
    try:
        return datetime.combine(date.fromisoformat(text), time(), UTC)
    except ValueError:
        raise Misconfigured(f"{option} {text!r}: expected a day like 2026-11-27, or yesterday") from None
