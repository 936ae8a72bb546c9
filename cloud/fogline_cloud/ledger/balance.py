"""The verdict on one stream: what its gateway says, what Kafka holds, what the tables hold. Pure."""

from dataclasses import dataclass, field

from fogline.ledger import Counts
from fogline_cloud.ledger.ranges import Numbers, Span, shown, without


@dataclass(frozen=True, slots=True)
class Loss:
    """Sequences that carry no event, and why: the word of a gap record."""

    first: int
    last: int
    reason: str
    detail: str


@dataclass(slots=True)
class Evidence:
    """Everything known of a stream.

    `kafka`: sequences of the committed records. `kafka_from`: the first sequence that Kafka can still have (older ones
    were deleted by its retention), 1 for all. `table`: sequences of the rows of `events`. `pending`: sequences whose
    records lie behind what the flow has read. `readings_missing`, `readings_double`: sequences of rows of `events`
    whose readings are not all in `readings`, or more than once; `readings_phantom`: of rows of `readings` that belong to
    no row of `events`. `losses`: what gap records explain, in order. `statement`: the gateway's last word, the sequence it
    stands at, how many of the events before it are arrivals of devices, and how many numbers before it gap records stand for
    (who knows of what). `closed_at`: where its gateway closed it, 0 if it did not.
    """

    gateway: str
    stream: str
    lane: str
    kafka: Numbers = field(default_factory=Numbers)
    kafka_from: int = 1
    table: Numbers = field(default_factory=Numbers)
    pending: list[Span] = field(default_factory=list)
    readings_missing: list[Span] = field(default_factory=list)
    readings_double: list[Span] = field(default_factory=list)
    readings_phantom: list[Span] = field(default_factory=list)
    gaps: list[Span] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    statement: Counts | None = None
    statement_at: int = 0
    closed_at: int = 0
    arrivals_before: int = 0
    gaps_before: int = 0
    bridge_duplicate: int = 0
    bridge_refused: int = 0


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that does not balance. `kind` is a short, stable word; `spans` the sequences."""

    gateway: str
    stream: str
    kind: str
    spans: list[Span]
    text: str


def judge(evidence: Evidence) -> list[Finding]:
    """What is missing, double or unexplained; empty if the stream balances. What is pending is no finding."""
    last = max(evidence.kafka.last, evidence.table.last)
    everything = [(1, last)] if last else []
    both = sorted([*evidence.kafka.spans, *evidence.table.spans])
    expected = without(evidence.kafka.spans, evidence.pending)
    stored = [(evidence.kafka_from, last)] if last >= evidence.kafka_from else []
    deleted = without(expected, evidence.table.spans)
    found = [
        ("lost", without(everything, both), "in neither Kafka nor the table"),
        ("kafka-double", evidence.kafka.doubles, "more than once in Kafka"),
        ("table-missing", deleted, "in Kafka, not in the table"),
        ("table-double", evidence.table.doubles, "more than once in the table"),
        ("phantom", without(_within(evidence.table.spans, stored), evidence.kafka.spans), "in the table, not in Kafka"),
        ("readings-missing", evidence.readings_missing, "in the table without its readings"),
        ("readings-double", evidence.readings_double, "in the table with its readings more than once"),
        ("readings-phantom", without(evidence.readings_phantom, deleted), "readings of what is not in the table"),
    ]
    place = f"{evidence.gateway} {evidence.lane} {evidence.stream}"
    findings = [
        Finding(evidence.gateway, evidence.stream, kind, spans, f"{place}: {shown(spans)}: {text}")
        for kind, spans, text in found
        if spans
    ]
    if evidence.closed_at and last > evidence.closed_at:
        spans = [(evidence.closed_at + 1, last)]
        text = f"{place}: {shown(spans)}: after the stream was closed"
        findings.append(Finding(evidence.gateway, evidence.stream, "after-closing", spans, text))
    if why := _statement_problem(evidence):
        at = [(evidence.statement_at, evidence.statement_at)]
        findings.append(Finding(evidence.gateway, evidence.stream, "statement", at, f"{place}: {why}"))
    return findings


def _within(spans: list[Span], bounds: list[Span]) -> list[Span]:
    return without(spans, without(spans, bounds))


def _statement_problem(evidence: Evidence) -> str:
    """Whether the gateway's own counts agree with the numbers before its statement.

    What Kafka has no more or has lost, or what a gap stands for, may have been an arrival or not: it has a line of its own.
    """
    counts = evidence.statement
    if counts is None:
        return ""
    at = evidence.statement_at
    if counts.stored != at - 1:
        return f"the gateway counted {counts.stored} stored events before sequence {at}"
    told = counts.acknowledged - counts.duplicate
    there = evidence.arrivals_before
    absent = sum(last - first + 1 for first, last in without([(1, at - 1)], evidence.kafka.spans))
    if not there <= told <= there + absent + evidence.gaps_before:
        return f"the gateway acknowledged {told} events before sequence {at}, {there} are there"
    return ""
