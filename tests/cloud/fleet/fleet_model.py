"""Plain Python that counts the rows of `events` as table `fleet` must, one row at a time."""

from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, timedelta
from math import ceil
from typing import Any

KEYS = ("tenant", "device", "gateway", "lane", "adapter", "firmware", "parser", "heard")
MINUTE, HOUR, DAY = 60, 3600, 86400
DELAYS_S = (
    *(1, 2, 5, 10, 30, MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 30 * MINUTE),
    *(HOUR, 2 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 3 * DAY, 7 * DAY, 14 * DAY, 30 * DAY),
)
OWN_REPORTS = ("REJECTED", "EXPIRED", "CANCELLED", "IN_DOUBT")


def is_by_device(event: dict[str, Any]) -> bool:
    """Return True if the device itself sent this: no gap, no statement, no report of the gateway."""
    if (
        event["device"] is None
        or event["device"] == event["gateway"]
        or event["outcome"] in {"gap", "statement", "chunk", "forgotten"}
    ):
        return False
    if event["reason"] == "notice":
        return False
    return not (event["reason"] == "reply" and event["detail"].split(": ")[1].split()[0] in OWN_REPORTS)


def size_bound(size: int) -> int:
    """Return the largest size of the step: exact up to 16, then eighths of a power of two."""
    if size <= 16:
        return size
    step = (1 << (size - 1).bit_length() - 1) // 8
    return ceil(size / step) * step


def delay_bound_ms(delay_ms: int) -> int:
    """Return the largest delay of the step."""
    return next((each * 1000 for each in DELAYS_S if delay_ms <= each * 1000), 100 * 365 * DAY * 1000)


def fleet_of_events(events: Iterable[dict[str, Any]]) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Return the rows of `fleet` for rows of `events`, by day and keys."""
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for event in events:
        own = is_by_device(event)
        is_known = own and event["recordedtime"] is not None and event["timequality"] != "unsynced"
        heard = min(event["recordedtime"], event["ingested"]) if is_known else event["ingested"]
        properties = dict(event["properties"] or [])
        of_device = (event["device"], event["adapter"], properties.get("firmware") or None, event["parser"])
        device, adapter, firmware, parser = of_device if own else (None,) * 4
        keys = (event["tenant"], device, event["gateway"], event["lane"], adapter, firmware, parser)
        key = (event["day"], *keys, heard.astimezone(UTC).date())
        row = rows.setdefault(key, _new(heard))
        row["events"] += 1
        row["first"], row["last"] = min(row["first"], heard), max(row["last"], heard)
        if own:
            _count(row, event, is_known=is_known)
    return rows


def _new(heard: Any) -> dict[str, Any]:
    numbers = ("events", "ok", "skip", "slow", "dead", "duplicate", "bytes", "most_bytes")
    numbers += ("delayed", "most_delay_ms", "ahead", "behind")
    return dict.fromkeys(numbers, 0) | {"first": heard, "last": heard, "sizes": defaultdict(int), "delays": defaultdict(int)}


def _count(row: dict[str, Any], event: dict[str, Any], *, is_known: bool) -> None:
    row[event["outcome"]] += 1
    size = event["size_bytes"] or 0
    row["bytes"] += size
    row["most_bytes"] = max(row["most_bytes"], size)
    row["sizes"][size_bound(size)] += 1
    if is_known:
        delay_ms = max(timedelta(0), event["ingested"] - event["recordedtime"]) // timedelta(milliseconds=1)
        row["delayed"] += 1
        row["most_delay_ms"] = max(row["most_delay_ms"], delay_ms)
        row["delays"][delay_bound_ms(delay_ms)] += 1
        if event["time"] is not None:
            row["ahead"] += event["time"] - event["recordedtime"] > timedelta(minutes=5)
            row["behind"] += event["time"] - event["recordedtime"] < -timedelta(days=7)


def as_model(rows: list[dict[str, Any]]) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Return rows of table `fleet`, with the column `day` if they have one, in the form of the model. No key may be twice."""
    found = {}
    for row in rows:
        key = (*([row["day"]] if "day" in row else []), *(row[name] for name in KEYS))
        assert key not in found, f"the key {key} is there twice"
        values = {name: value for name, value in row.items() if name not in {*KEYS, "day"}}
        values["sizes"] = {each["at_most_bytes"]: each["events"] for each in row["sizes"]}
        values["delays"] = {each["at_most_ms"]: each["events"] for each in row["delays"]}
        found[key] = values
    return found
