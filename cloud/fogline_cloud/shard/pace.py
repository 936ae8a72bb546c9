"""How much a Kafka transaction of a shard may hold, and how long it may take, by what became of the former ones. Pure.

Kafka ends a transaction that is not committed in time, and nothing of it counts. So a transaction that is too large for the
line to Kafka would fail for ever. After a failure the next transactions are half as large, and one that holds a single piece
of work gets twice the time: each shard goes on, however slow the line is.
"""

from dataclasses import dataclass, field

from fogline_cloud.kafka.clients import TRANSACTION_TIMEOUT_MS

MOST_BYTES = 4 * 1024 * 1024
LEAST_BYTES = 64 * 1024
"""Bytes of records, before compression, at which a transaction takes no more work: at most, and at least."""
LIMIT_S = TRANSACTION_TIMEOUT_MS / 1000
LONGEST_S = 240.0
"""The longest limit. Kafka's default allows 900 s (`transaction.max.timeout.ms`)."""
QUICK = 0.25
"""The part of its time in which a transaction has to be committed before the next ones grow: twice as much then fits, too."""


@dataclass(slots=True)
class Pace:
    """The limits of the next transaction: `most_bytes`, and `limit_s`, which counts for the producer that is made next."""

    most_bytes: int = MOST_BYTES
    limit_s: float = field(default_factory=lambda: LIMIT_S)

    def failed(self, size_bytes: int, pieces: int) -> None:
        """Note that a transaction with so many bytes, in so many pieces of work, is not known to be committed."""
        size_bytes = min(size_bytes, self.most_bytes)
        if pieces > 1 and size_bytes > LEAST_BYTES:
            self.most_bytes = max(LEAST_BYTES, size_bytes // 2)
        elif pieces:
            self.limit_s = min(2 * self.limit_s, LONGEST_S)

    def committed(self, took_s: float) -> None:
        """Note that the commit of a transaction took so long."""
        if took_s < QUICK * self.limit_s:
            self.most_bytes = min(2 * self.most_bytes, MOST_BYTES)
            self.limit_s = max(self.limit_s / 2, LIMIT_S)
