"""Judgement of the certificates that change during a run: one is renewed, one is revoked. Pure.

Events that a revoked gateway has acknowledged, and could not send before it was cut, stay in its outbox. They are counted
there: each acknowledged event of its device is in Kafka and in the table once, or it is in the outbox.
"""

from collections import Counter
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

CUT_LIMIT_S = 60.0
"""The longest that a revoked gateway may stay connected."""
IN_AUDIT = frozenset({"CONNECTED", "CONNECTION CLOSED", "CONNECTION REFUSED"})
"""Decisions about a revoked gateway that the audit must have."""
_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Renewal:
    """One renewal: the serial numbers before and after it, and the seconds that it took."""

    gateway: str
    before: str
    after: str
    took_s: float


@dataclass(frozen=True, slots=True)
class Revocation:
    """One revocation. `cut_s`: from the start of `fogline ca revoke` until the bridge had closed the connection.

    `sent_before`: the device's counter at that moment. `refused`: how often the gateway tried in vain to come back.
    `audited`: the decisions about it in the audit.
    """

    gateway: str
    cut_s: float
    sent_before: int
    refused: int = 0
    audited: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class RevokedEvents:
    """Counters of the events of the revoked gateway's device. `kafka`, `table`: with the number of copies."""

    acknowledged: AbstractSet[int]
    kafka: Counter[int]
    table: Counter[int]
    outbox: AbstractSet[int]


@dataclass(frozen=True, slots=True)
class CertificateJudgement:
    """`kept`: acknowledged events that are in the outbox of the revoked gateway only."""

    renewal: Renewal
    revocation: Revocation
    acknowledged: int
    landed: int
    kept: int
    problems: list[str]

    @property
    def rows(self) -> list[tuple[str, object]]:
        """Lines of the report."""
        renewal, revocation = self.renewal, self.revocation
        serials = f"serial {renewal.before[:_SHOWN]}.. became {renewal.after[:_SHOWN]}.. in {renewal.took_s:.1f} s"
        since = f"cut after {revocation.cut_s:.1f} s, refused {revocation.refused} times since then, as the audit says"
        events = f"{self.acknowledged:,} acknowledged: {self.landed:,} in Kafka and in the table, {self.kept:,} in its outbox"
        return [
            (f"certificate of {renewal.gateway} renewed", serials),
            (f"certificate of {revocation.gateway} revoked", since),
            (f"events of {revocation.gateway}", events),
        ]

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        renewal, revocation = self.renewal, self.revocation
        return {
            "renewed": {"gateway": renewal.gateway, "before": renewal.before, "after": renewal.after, "took_s": renewal.took_s},
            "revoked": {"gateway": revocation.gateway, "cut_s": revocation.cut_s, "refused": revocation.refused},
            "revoked_events": {"acknowledged": self.acknowledged, "landed": self.landed, "in_outbox": self.kept},
        }


def judge_certificates(renewal: Renewal, revocation: Revocation, events: RevokedEvents) -> CertificateJudgement:
    """Compare."""
    landed = events.kafka.keys() & events.table.keys()
    copies = [each for counts in (events.kafka, events.table) for each, count in counts.items() if count > 1]
    wrong: Sequence[tuple[str, AbstractSet[int]]] = (
        ("lost", events.acknowledged - events.kafka.keys() - events.outbox),
        ("in only one of Kafka and table", events.kafka.keys() ^ events.table.keys()),
        ("twice in Kafka or in the table", set(copies)),
        ("in Kafka, and sent after the gateway was cut", {each for each in events.kafka if each > revocation.sent_before}),
    )
    problems = [f"{len(ids)} events of {revocation.gateway} are {what}: {sorted(ids)[:_SHOWN]}" for what, ids in wrong if ids]
    if renewal.before == renewal.after:
        problems.append(f"{renewal.gateway} still has its former certificate")
    if revocation.cut_s > CUT_LIMIT_S:
        problems.append(f"{revocation.gateway} was cut after {revocation.cut_s:.0f} s, at most {CUT_LIMIT_S:.0f} s are allowed")
    if not revocation.refused:
        problems.append(f"{revocation.gateway} was not refused after it was cut")
    if missing := IN_AUDIT - revocation.audited:
        problems.append(f"the audit lacks decisions about {revocation.gateway}: {', '.join(sorted(missing))}")
    kept = len(events.acknowledged - landed)
    return CertificateJudgement(renewal, revocation, len(events.acknowledged), len(landed), kept, problems)
