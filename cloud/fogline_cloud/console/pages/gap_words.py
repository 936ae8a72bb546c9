"""Gap records in words: why sequences of a gateway carry no event, and whether one was an event of the device. Pure."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from fogline.errors import Poison
from fogline.events.gap import decode_gap

MEANINGS: Final = {
    "dropped": "`drop_oldest` deleted the events, or the quarantine exceeded its share of the outbox",
    "refused": "the bridge refused the event: the sender had no right to it, or it is not readable",
    "quarantined": "the bridge rejected the event for good; it is in the gateway's quarantine",
    "expired": "the event's message expiry passed while it waited (`outbox.when_expired`)",
    "damaged": "the event was in a damaged part of the outbox file",
    "lost": "the bridge had accepted the event, but has it no more: its Kafka was lost",
    "rebuilt": "Kafka lost the record; the event is in the tables",
}
"""The reasons of a gateway's gap records, in the words of docs/operations.md."""


class GapRow(msgspec.Struct, frozen=True):
    """A gap record, as a page shows it. `meaning`: its reason in words; `device`: that of the event, if the record names it."""

    stored: datetime | None
    gateway: str
    lane: str
    stream: str
    first: int
    last: int
    reason: str
    meaning: str
    detail: str
    device: str

    @property
    def count(self) -> int:
        """How many sequences it stands for."""
        return self.last - self.first + 1


def gap_row(row: Mapping[str, Any]) -> GapRow:
    """Return a row of table `events` whose outcome is `gap`."""
    reason = row["reason"] or ""
    try:
        device = decode_gap(row["data"] or b"").device or ""
    except Poison:
        device = ""
    return GapRow(
        stored=row["recordedtime"] or row["ingested"],
        gateway=row["gateway"] or "",
        lane=row["lane"] or "",
        stream=row["stream"] or "",
        first=row["first_sequence"] or 0,
        last=row["sequence"] or 0,
        reason=reason,
        meaning=MEANINGS.get(reason, ""),
        detail=row["detail"] or "",
        device=device,
    )
