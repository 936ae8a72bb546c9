"""Counters of the listener."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class CoapCounters:
    """Counters since the start. `fogline.process.monitoring.metrics` has their meanings."""

    datagrams: int = 0
    dropped: int = 0
    cut: int = 0
    malformed: int = 0
    duplicates: int = 0
    unsent: int = 0
    received: int = 0
    acknowledged: int = 0
    blocks: int = 0
    slowed: int = 0
    too_many: int = 0
    separate: int = 0
    undelivered: int = 0
    asks: int = 0
    asks_over_limit: int = 0
    observations: int = 0
    observations_over_limit: int = 0
    commands: int = 0
    answers: int = 0
    unsealed: int = 0
    challenges: int = 0
    synchronized: int = 0
    refused: dict[str, int] = field(default_factory=dict)
