"""Counters of the listener."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class HttpCounters:
    """Counters since the start. `fogline.process.monitoring.metrics` has their meanings."""

    connected: int = 0
    connections: int = 0
    over_limit: int = 0
    timed_out: int = 0
    malformed: int = 0
    handshakes_refused: int = 0
    received: int = 0
    acknowledged: int = 0
    slowed: int = 0
    limited: int = 0
    logins_refused: int = 0
    logins_postponed: int = 0
    asks: int = 0
    asks_over_limit: int = 0
    commands: int = 0
    commands_taken: int = 0
    commands_lost: int = 0
    answers: int = 0
    refused: dict[str, int] = field(default_factory=dict)
