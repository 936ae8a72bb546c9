"""Turns one raw record into one row of `events`. Pure except for the parser: no Spark, no Kafka, no files."""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import parse_qsl

import msgspec

import fogline.events.event
from fogline import dead_letter
from fogline.address import check_identifier
from fogline.errors import Poison
from fogline.events import bridge_notice, gap, large_body
from fogline.events.event import Event, parse_rfc3339
from fogline.gateway import ledger
from fogline.short_cache import cache_short
from fogline_cloud.flows.parsers import essence
from fogline_cloud.flows.sandbox.parser_runner import CheckedReading, ParseResult, detail_text, reason_text
from fogline_cloud.flows.tables.schema import EventOutcome
from fogline_cloud.flows.worker.parser_choice import Choose
from fogline_cloud.kafka import records

MAX_HEADERS_BYTES = 96 * 1024
"""A record with more bytes of header values is dead, because its derived records could be larger than Kafka takes."""
_MAX_UNREADABLE_CHARS = 4096  # length to which each header of an unreadable record is cut


class Raw(msgspec.Struct, frozen=True, gc=False):
    """A record from Kafka. `ingested_ns`: Kafka's timestamp. `position` returns topic, partition and offset as one text."""

    headers: Mapping[str, bytes]
    value: bytes
    ingested_ns: int
    position: Callable[[], str]


class EventRow(NamedTuple):
    """The columns `fogline_cloud.flows.tables.schema.DECIDED` of one row, in their order. Times in microseconds since 1970."""

    gateway: str | None = None
    stream: str | None = None
    first_sequence: int | None = None
    sequence: int | None = None
    lane: str | None = None
    source: str | None = None
    id: str | None = None
    device: str | None = None
    type: str | None = None
    subject: str | None = None
    dedup: str | None = None
    replayed: bool = False
    again: bool | None = None
    time: int | None = None
    recordedtime: int | None = None
    timequality: str | None = None
    content_type: str | None = None
    adapter: str | None = None
    properties: dict[str, str] | None = None
    dataref: str | None = None
    outcome: str = ""  # never empty in a row; a default, because fields before it have one
    reason: str | None = None
    detail: str | None = None
    parser: str | None = None
    parser_digest: str | None = None
    parse_us: int | None = None
    readings: Sequence[CheckedReading] = ()


RunParser = Callable[[str, Event], ParseResult]
"""Runs the parser of this name on an event: `fogline_cloud.flows.sandbox.parser_runner.ParserRunner.run`."""


def decide(raw: Raw, tenant: str, choose: Choose, run_parser: RunParser) -> EventRow:
    """Return the row of one record. Never raises because of the record's content."""
    record = read_record(raw, tenant, choose)
    if isinstance(record, EventRow):
        return record
    return row_of(record, record.result or run_parser(record.parser, record.event))


class ReadRecord(msgspec.Struct, frozen=True, gc=False):
    """A readable record, before a parser runs. `times`: the event's own and `recordedtime`, in microseconds since 1970.

    `result`: the result if no parser is needed; then `parser` is empty.
    """

    event: Event
    first: int
    times: tuple[int | None, int]
    parser: str = ""
    result: ParseResult | None = None


def read_record(raw: Raw, tenant: str, choose: Choose) -> ReadRecord | EventRow:
    """Read a record and choose its parser. An unreadable record is a row already."""
    try:
        event, first, times = _read(raw, tenant)
    except Poison as error:
        return _unreadable(raw, error)
    try:
        result = _result_without_parser(event)
    except Poison as error:
        result = ParseResult(EventOutcome.DEAD, 0, reason_text(error.reason), detail_text(error))
    if result is not None:
        return ReadRecord(event, first, times, result=result)
    name = choose(event)
    return ReadRecord(event, first, times, result=_NO_PARSER) if name is None else ReadRecord(event, first, times, name)


def row_of(record: ReadRecord, result: ParseResult, digest: str | None = None) -> EventRow:
    """Return the row of a readable record. `digest`: of the parser's wheel, if it is a deployed one."""
    event = record.event
    numbered = bool(event.stream)
    return EventRow(  # by position, because names take three times as long
        event.gateway or None,
        event.stream or None,
        record.first if numbered else None,
        event.sequence if numbered else None,
        event.lane if numbered else None,
        event.source,
        event.id,
        event.device,
        event.type,
        event.subject,
        event.dedup,
        event.replayed,
        None,  # again
        *record.times,
        event.timequality,
        event.content_type,
        event.adapter,
        dict(parse_qsl(event.properties, keep_blank_values=True)) if event.properties else None,
        event.dataref,
        result.outcome,
        result.reason,
        result.detail,
        record.parser or None,
        digest,
        result.parse_us if record.parser else None,
        result.readings,
    )


_NO_PARSER = ParseResult(EventOutcome.SKIP, 0, "no-parser", "no parser takes this content type, and no rule fits")


def _read(raw: Raw, tenant: str) -> tuple[Event, int, tuple[int | None, int]]:
    if (size := sum(map(len, raw.headers.values()))) > MAX_HEADERS_BYTES:
        raise Poison("malformed", f"a record has {size} bytes of headers, more than {MAX_HEADERS_BYTES}")
    headers = records.completed(raw.headers, position=raw.position, ingested_ns=raw.ingested_ns)
    event = records.event_of(headers, raw.value, tenant)
    _check_device(event.device)
    if not event.id:
        raise Poison("malformed", "a record's id is empty")
    first = event.sequence
    if event.content_type == gap.GAP_CONTENT_TYPE:
        first = gap.decode_gap(raw.value).first
    if event.stream and not 1 <= first <= event.sequence <= records.MAX_SEQUENCE:
        raise Poison("malformed", f"{first} to {event.sequence} is not a range of sequences")
    try:
        own = None if event.time is None else _microseconds(event.time)
        return event, first, (own, _microseconds(event.recordedtime))
    except (ValueError, OverflowError) as error:
        raise Poison("malformed", f"a time cannot be read: {error}") from None


@lru_cache(maxsize=4096)
def _check_device(device: str) -> None:
    check_identifier(device, "device_id")


@cache_short(maxsize=4096)
def _microseconds(text: str) -> int:
    return parse_rfc3339(text) // 1000


def _result_without_parser(event: Event) -> ParseResult | None:
    outcome, reason, detail = EventOutcome.SKIP, "", ""
    match essence(event.content_type):
        case _ if event.commandid is not None:
            reason, detail = "reply", f"command {event.commandid}: {event.commandstate} {event.status}"
        case fogline.events.event.EMPTY_NOTIFICATION:
            reason, detail = "notification", f"ready to receive commands: ttd {event.ttd}"
        case bridge_notice.NOTICE_CONTENT_TYPE:
            reason, detail = "notice", event.data.decode("utf-8", "replace")
        case gap.GAP_CONTENT_TYPE:
            found = gap.decode_gap(event.data)
            outcome, reason, detail = EventOutcome.GAP, found.reason, found.detail
        case ledger.STATEMENT_CONTENT_TYPE:
            ledger.decode_statement(event.data)
            return ParseResult(EventOutcome.STATEMENT)
        case large_body.CHUNK_CONTENT_TYPE:
            is_end = isinstance(large_body.read_dataref(event.dataref or ""), large_body.BodyEnd)
            return ParseResult(EventOutcome.CHUNK, 0, "ended" if is_end else None)
        case dead_letter.DEAD_CONTENT_TYPE:
            letter = dead_letter.decode_dead_letter(event.data)
            outcome, reason, detail = EventOutcome.DEAD, letter.reason, letter.detail
        case _ if event.dataref is not None:
            large_body.read_dataref(event.dataref)
            return None
        case _:
            return None
    return ParseResult(outcome, 0, reason_text(reason), detail_text(detail))


def _unreadable(raw: Raw, error: Poison) -> EventRow:
    """Return a dead row with every readable part of its stream position, so that its sequence does not look lost."""
    text = {name: value[:_MAX_UNREADABLE_CHARS].decode("utf-8", "replace") for name, value in raw.headers.items()}
    position = records.known_position(list(raw.headers.items()), raw.value)
    if position is not None and len(position.gateway) + len(position.stream) > _MAX_UNREADABLE_CHARS:
        position = None
    return EventRow(
        gateway=position.gateway if position else None,
        stream=position.stream if position else None,
        first_sequence=position.first if position else None,
        sequence=position.last if position else None,
        lane=position.lane.value if position else None,
        source=text.get("ce_source"),
        id=text.get("ce_id"),
        device=text.get("device_id"),
        type=text.get("ce_type"),
        subject=text.get("ce_subject"),
        replayed=records.is_replayed(raw.headers),
        content_type=text.get("content-type"),
        adapter=text.get("orig_adapter"),
        outcome=EventOutcome.DEAD.value,
        reason=reason_text(error.reason),
        detail=detail_text(error),
    )
