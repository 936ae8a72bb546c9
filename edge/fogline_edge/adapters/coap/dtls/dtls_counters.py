"""Counters of DTLS."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class DtlsCounters:
    """Counters since the start; `sessions` is a gauge. `fogline.process.monitoring.metrics` has their meanings."""

    sessions: int = 0
    hellos: int = 0
    handshakes: int = 0
    dropped: int = 0
    retransmitted: int = 0
    replaced: int = 0
    moved: int = 0
    ended: int = 0
    idle: int = 0
    revoked: int = 0
    refused: dict[str, int] = field(default_factory=dict)

    def refuse(self, reason: str) -> None:
        """Count a refusal."""
        self.refused[reason] = self.refused.get(reason, 0) + 1
