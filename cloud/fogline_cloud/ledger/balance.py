"""Compares a gateway's counts, Kafka and the tables for one stream. Pure."""

from dataclasses import dataclass, field

from fogline.gateway.ledger import Counts
from fogline_cloud.ledger.ranges import SequenceSet, Span, shown, size, without


@dataclass(frozen=True, slots=True)
class Loss:
    """Sequences without an event, and the reason from their gap record."""

    first: int
    last: int
    reason: str
    detail: str


@dataclass(slots=True)
class StreamEvidence:
    """All evidence about one stream."""

    gateway: str
    stream: str
    lane: str
    kafka: SequenceSet = field(default_factory=SequenceSet)  # sequences of the committed records
    kafka_from: int = 1  # the first sequence that retention can have left in Kafka
    table: SequenceSet = field(default_factory=SequenceSet)  # sequences of the rows of `events`
    table_from: int = 1  # the first sequence that the tables' retention can have left
    pending: list[Span] = field(default_factory=list)  # sequences that the flow has not read yet
    readings_missing: list[Span] = field(default_factory=list)  # sequences in `events` whose readings are not all in `readings`
    readings_double: list[Span] = field(default_factory=list)  # sequences whose readings are in `readings` more than once
    readings_phantom: list[Span] = field(default_factory=list)  # sequences in `readings` without a row in `events`
    repeated_ids: list[Span] = field(default_factory=list)  # sequences of events whose identity another event of the day has
    gaps: list[Span] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)  # from gap records, and accepted gaps by retention, in order
    deleted: list[Span] = field(default_factory=list)  # sequences that retention deleted before the flow had read them
    statement: Counts | None = None  # the gateway's last counts
    statement_at: int = 0  # its sequence
    closed_at: int = 0  # the last sequence of a closed stream, otherwise 0
    arrivals_before: int = 0  # events of devices that Kafka has before the statement
    gaps_before: int = 0  # sequences for which gap records stand before the statement
    bridge_duplicate: int | None = None  # retransmissions that the bridge discarded, None if that is unknown
    newest: tuple[int, int] = (0, 0)  # of the last record in Kafka: its sequence, and when the gateway stored it (0: unknown)
    statement_ms: int = 0  # when the gateway wrote its last statement, 0 if that is unknown
    heads: dict[str, int] = field(default_factory=dict)  # from that statement: the last sequence of each stream of the gateway
    pending_ms: int = 0  # when the gateway stored the first event that the flow has not read, 0 for none


@dataclass(frozen=True, slots=True)
class LedgerFinding:
    """One imbalance of a stream. `kind` is a short, stable word; `spans` holds the sequences."""

    gateway: str
    stream: str
    kind: str
    spans: list[Span]
    text: str


def judge(evidence: StreamEvidence) -> list[LedgerFinding]:
    """Return the missing, duplicate and unexplained sequences; none if the stream balances. Pending ones are no finding."""
    last = max(evidence.kafka.last, evidence.table.last)
    everything = [(evidence.table_from, last)] if last else []
    table = evidence.table.spans
    both = sorted([*evidence.kafka.spans, *table])
    late = [(evidence.closed_at + 1, last)] if 0 < evidence.closed_at < last else []
    retained = without(table, [(1, evidence.kafka_from - 1)])  # retention deletes the older records from Kafka only
    wanted = without(without(evidence.kafka.spans, evidence.pending), [(1, evidence.table_from - 1)])
    deleted = without(wanted, table)
    repeated = without(sorted(evidence.repeated_ids), evidence.table.duplicates)
    found = [
        ("lost", without(without(everything, both), evidence.deleted), "in neither Kafka nor the table"),
        ("kafka-double", evidence.kafka.duplicates, "more than once in Kafka"),
        ("table-missing", deleted, "in Kafka, not in the table"),
        ("table-double", evidence.table.duplicates, "more than once in the table"),
        ("phantom", without(retained, evidence.kafka.spans), "in the table, not in Kafka"),
        ("readings-missing", evidence.readings_missing, "in the table without its readings"),
        ("readings-double", evidence.readings_double, "in the table with its readings more than once"),
        ("readings-phantom", without(evidence.readings_phantom, deleted), "readings without an event in the table"),
        ("identity", repeated, "in the table with the source and id of another event"),
        ("after-closing", late, "after the stream was closed"),
    ]
    place = f"{evidence.gateway} {evidence.lane} {evidence.stream}"
    findings = [
        LedgerFinding(evidence.gateway, evidence.stream, kind, spans, f"{place}: {shown(spans)}: {text}")
        for kind, spans, text in found
        if spans
    ]
    if why := _statement_problem(evidence):
        at = [(evidence.statement_at, evidence.statement_at)]
        findings.append(LedgerFinding(evidence.gateway, evidence.stream, "statement", at, f"{place}: {why}"))
    return findings


def _statement_problem(evidence: StreamEvidence) -> str:
    """Compare the gateway's counts with the sequences before its statement. Return the problem, or an empty string."""
    counts = evidence.statement
    if counts is None:
        return ""
    at = evidence.statement_at
    if counts.stored != at - 1:
        return f"the gateway counted {counts.stored} stored events before sequence {at}"
    landing = counts.landing
    arrived = evidence.arrivals_before
    # Sequences that are missing in Kafka or in a gap record may have been arrivals. They have findings of their own.
    unknown = size(without([(1, at - 1)], evidence.kafka.spans)) + evidence.gaps_before
    if not arrived <= landing <= arrived + unknown:
        by_rules = " and its rules did not keep back" if counts.rules else ""
        return f"the gateway acknowledged{by_rules} {landing} events before sequence {at}, {arrived} are there"
    return ""
