"""The document to hand over: what was asked, the verdict with each reason against it, and the counts by stage. Pure."""

from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec

from fogline.documents.document_error import explained
from fogline.errors import Poison
from fogline.gateway.ledger import RuleCounts
from fogline_cloud.ledger.period_rows import PeriodRows
from fogline_cloud.ledger.verification import Verification

KIND = "fogline-proof"
"""The kind of the signed document."""


class Doubt(msgspec.Struct, frozen=True):
    """One thing that speaks against completeness. `kind`: `silent`, `marks`, `no-gateway`, or the kind of a finding."""

    kind: str
    gateway: str
    text: str


class GatewayStage(msgspec.Struct, frozen=True):
    """What one gateway says of itself. Times are None if they are unknown."""

    gateway: str
    complete_until: datetime | None
    last_event: datetime | None
    backlog: int


class StreamStage(msgspec.Struct, frozen=True):
    """Counts of one stream since its beginning. `acknowledged` and `resent` are None without a statement of the gateway.

    `rules`: what the gateway's rules did with events, by rule.
    """

    gateway: str
    stream: str
    lane: str
    acknowledged: int | None
    resent: int | None
    kafka: int
    table: int
    waiting: int
    rules: RuleCounts = {}


class ProofDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the events that gateways stored from `begin` until `end` are in the tables, each once. `device`: None for all."""

    tenant: str
    device: str | None
    begin: datetime | None
    end: datetime
    complete: bool
    doubts: list[Doubt]
    left_out: list[str]
    gateways: list[GatewayStage]
    streams: list[StreamStage]
    rows: PeriodRows


def document_of(tenant: str, found: Verification, rows: PeriodRows) -> ProofDocument:
    """Return the document of a verification."""
    names = {each.gateway for each in found.proof.gateways}
    return ProofDocument(
        tenant=tenant,
        device=found.device,
        begin=found.period.begin,
        end=found.period.end,
        complete=found.complete and rows.readings == rows.readings_expected,
        doubts=list(_doubts(found, rows)),
        left_out=found.proof.left_out,
        gateways=[
            GatewayStage(each.gateway, _moment(each.complete_ms), _moment(each.last_ms), each.backlog)
            for each in found.proof.gateways
        ],
        streams=[
            StreamStage(
                each.gateway,
                each.stream,
                each.lane or "unknown",  # a row that nobody sent may have none
                each.statement.acknowledged if each.statement else None,
                each.statement.duplicate if each.statement else None,
                each.kafka.count,
                each.table.count,
                sum(last - first + 1 for first, last in each.pending),
                each.statement.rules if each.statement else {},
            )
            for each in found.streams
            if each.gateway in names
        ],
        rows=rows,
    )


def encode_document(document: ProofDocument) -> bytes:
    """Return the document as JSON."""
    return msgspec.json.encode(document)


def decode_document(body: bytes) -> ProofDocument:
    """Return the document from JSON. Raises `Poison`. What a newer version adds is left out."""
    try:
        return msgspec.json.decode(body, type=ProofDocument)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Poison(
            "form", f"the signature is right, but the document is not a proof: {explained(error, ProofDocument)}"
        ) from None


def lines_of(document: ProofDocument) -> Iterator[str]:
    """Yield the document as text for people. It has texts of gateways and devices as they are: the caller escapes them."""
    what = f"device {document.device}" if document.device is not None else "all devices"
    begin = _shown(document.begin) if document.begin is not None else "the first event"
    yield f"{'COMPLETE' if document.complete else 'INCOMPLETE'}: tenant {document.tenant}, {what}"
    yield f"events that gateways stored from {begin} until {_shown(document.end)}"
    for doubt in document.doubts:
        yield f"incomplete: {doubt.text}"
    for name in document.left_out:
        yield f"left out: gateway {name}"
    events = ", ".join(f"{count:,} {outcome}" for outcome, count in document.rows.events.items())
    yield f"table events: {sum(document.rows.events.values()):,} rows ({events or 'none'})"
    yield f"table readings: {document.rows.readings:,} rows of {document.rows.readings_expected:,}"
    yield f"gap records of this time: {document.rows.gap_records:,}"
    for gap in document.rows.gaps:
        span = str(gap.first) if gap.first == gap.last else f"{gap.first} to {gap.last}"
        yield f"explained: {gap.gateway} {gap.stream}: {span}: {gap.reason}: {gap.detail}"
    for gateway in document.gateways:
        yield f"gateway {gateway.gateway}: complete until {_shown(gateway.complete_until)}, last backlog {gateway.backlog:,}"
    for each in document.streams:
        yield (
            f"stream {each.gateway} {each.lane} {each.stream}, since it began: acknowledged {_count(each.acknowledged)}, "
            f"resends refused {_count(each.resent)}, Kafka {each.kafka:,}, table {each.table:,}, waiting {each.waiting:,}"
        )
        for rule, outcomes in each.rules.items():
            yield f"  rule {rule}: " + ", ".join(f"{events:,} {outcome}" for outcome, events in outcomes.items())


def _doubts(found: Verification, rows: PeriodRows) -> Iterator[Doubt]:
    if not found.proof.gateways:
        yield Doubt("no-gateway", "", "no gateway has sent events")
    for each in found.proof.silent:
        since = f"silent since {_shown(_moment(each.last_ms))}" if each.last_ms else "without a known time"
        why = f" ({each.why})" if each.why else ""
        text = (
            f"gateway {each.gateway} is complete until {_shown(_moment(each.complete_ms))}, {since}, backlog {each.backlog:,}"
        )
        yield Doubt("silent", each.gateway, text + why)
    for hole in found.proof.holes:
        yield Doubt(hole.kind, hole.gateway, hole.text)
    for where in (*found.gathered.tables.wrong, *found.gathered.kafka.wrong):
        yield Doubt("marks", "", f"marks of an earlier run were wrong: {where or 'all rows'}: run it again")
    if rows.readings != rows.readings_expected:
        text = f"table readings has {rows.readings:,} rows of this time, and events names {rows.readings_expected:,} values"
        yield Doubt("readings", "", text)


def _moment(ms: int) -> datetime | None:
    return datetime.fromtimestamp(ms / 1000, UTC) if ms else None


def _shown(moment: datetime | None) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}" if moment is not None else "an unknown time"


def _count(count: int | None) -> str:
    return "-" if count is None else f"{count:,}"
