"""What becomes of one raw record. Pure but for the parser that is asked: no Spark, no Kafka, no files."""

from collections.abc import Callable, Mapping
from functools import lru_cache

import msgspec

from fogline.address import check_identifier
from fogline.dead import DEAD_CONTENT_TYPE, decode_dead_letter
from fogline.errors import Poison
from fogline.event import EMPTY_NOTIFICATION, Event, parse_rfc3339
from fogline.gap import GAP_CONTENT_TYPE, decode_gap
from fogline.ledger import STATEMENT_CONTENT_TYPE, decode_statement
from fogline.notice import NOTICE_CONTENT_TYPE
from fogline.short_cache import cache_short
from fogline_cloud import records
from fogline_cloud.flows.asking import Answer, Checked, prose, word
from fogline_cloud.flows.parsers import essence, parser_name
from fogline_cloud.flows.schema import Outcome

MAX_SEQUENCE = 2**63 - 1
"""The highest sequence that a row can hold."""
MAX_HEADERS_BYTES = 96 * 1024
"""A record with more bytes of header values is dead: what is derived of it could be longer than Kafka takes."""
_MAX_UNREADABLE_CHARS = 4096
"""What is kept of each header of a record that is not readable."""


class Raw(msgspec.Struct, frozen=True):
    """A record as Kafka has it. `ingested_ns`: Kafka's timestamp. `place` gives topic, partition and offset in one text."""

    headers: Mapping[str, bytes]
    value: bytes
    ingested_ns: int
    place: Callable[[], str]


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """The decision: the columns `fogline_cloud.flows.schema.DECIDED`, in their order. Times in microseconds since 1970."""

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
    outcome: str
    reason: str | None = None
    detail: str | None = None
    parser: str | None = None
    parse_us: int | None = None
    readings: list[Checked] = []


Ask = Callable[[str, Event], Answer]
"""Parser's name and event to an answer: `fogline_cloud.flows.asking.Asking.ask`."""


def decide(raw: Raw, tenant: str, overrides: Mapping[str, str], ask: Ask) -> Row:
    """The row of one record. Never raises because of what the record holds."""
    try:
        event, first, times = _read(raw, tenant)
    except Poison as error:
        return _unreadable(raw, error)
    name: str | None = None
    try:
        answer = _special(event)
        if answer is None:
            name = parser_name(event.content_type, overrides)
            answer = _NO_PARSER if name is None else ask(name, event)
    except Poison as error:
        answer = Answer(Outcome.DEAD, 0, word(error.reason), prose(error))
    numbered = bool(event.stream)
    return Row(
        gateway=event.gateway or None,
        stream=event.stream or None,
        first_sequence=first if numbered else None,
        sequence=event.sequence if numbered else None,
        lane=event.lane.value if numbered else None,
        source=event.source,
        id=event.id,
        device=event.device,
        type=event.type,
        subject=event.subject,
        dedup=event.dedup,
        replayed=event.replayed,
        time=times[0],
        recordedtime=times[1],
        timequality=event.timequality.value,
        content_type=event.content_type,
        adapter=event.adapter,
        outcome=answer.outcome.value,
        reason=answer.reason,
        detail=answer.detail,
        parser=name,
        parse_us=None if name is None else answer.parse_us,
        readings=answer.readings,
    )


_NO_PARSER = Answer(Outcome.SKIP, 0, "no-parser", "no parser takes this content type")


def _read(raw: Raw, tenant: str) -> tuple[Event, int, tuple[int | None, int]]:
    """The event, the first sequence that it stands for, and its times (its own, recorded) in microseconds."""
    headers = raw.headers
    if (size := sum(map(len, headers.values()))) > MAX_HEADERS_BYTES:
        raise Poison("malformed", f"a record has {size} bytes of headers, more than {MAX_HEADERS_BYTES}")
    if "ce_stream" not in headers:
        headers = records.completed(headers, place=raw.place(), ingested_ns=raw.ingested_ns)
    event = records.event_of(headers, raw.value, tenant)
    _check_device(event.device)
    if not event.id:
        raise Poison("malformed", "a record's id is empty")
    first = event.sequence
    if event.content_type == GAP_CONTENT_TYPE:
        first = decode_gap(raw.value).first
    if event.stream and not 1 <= first <= event.sequence <= MAX_SEQUENCE:
        raise Poison("malformed", f"a record cannot stand for {first} to {event.sequence}")
    try:
        own = None if event.time is None else _microseconds(event.time)
        return event, first, (own, _microseconds(event.recordedtime))
    except (ValueError, OverflowError) as error:
        raise Poison("malformed", f"a time is not readable: {error}") from None


@lru_cache(maxsize=4096)
def _check_device(device: str) -> None:
    check_identifier(device, "device_id")


@cache_short(maxsize=4096)
def _microseconds(text: str) -> int:
    """RFC 3339 to microseconds since 1970. Raises `ValueError`, `OverflowError`."""
    return parse_rfc3339(text) // 1000


def _special(event: Event) -> Answer | None:
    """The answer for what is no measurement: a word of the gateway itself, or about commands; `None` for any other."""
    if (passed_over := _passed_over(event)) is not None:
        return Answer(Outcome.SKIP, 0, *passed_over)
    match essence(event.content_type):
        case kind if kind == GAP_CONTENT_TYPE:
            gap = decode_gap(event.data)
            return Answer(Outcome.GAP, 0, word(gap.reason), prose(gap.detail))
        case kind if kind == STATEMENT_CONTENT_TYPE:
            decode_statement(event.data)
            return Answer(Outcome.STATEMENT)
        case kind if kind == DEAD_CONTENT_TYPE:
            letter = decode_dead_letter(event.data)
            return Answer(Outcome.DEAD, 0, word(letter.reason), prose(letter.detail))
    return None


def _passed_over(event: Event) -> tuple[str, str] | None:
    """Reason and detail of what has nothing to parse."""
    if event.commandid is not None:
        return "reply", f"command {event.commandid}: {event.commandstate} {event.status}"
    match essence(event.content_type):
        case kind if kind == EMPTY_NOTIFICATION:
            return "notification", f"ready to receive commands: ttd {event.ttd}"
        case kind if kind == NOTICE_CONTENT_TYPE:
            return "notice", prose(event.data.decode("utf-8", "replace"))
    return None


def _unreadable(raw: Raw, error: Poison) -> Row:
    """A dead row with as much of its place as can be told, so that its number does not look lost."""
    text = {name: value[:_MAX_UNREADABLE_CHARS].decode("utf-8", "replace") for name, value in raw.headers.items()}
    place = _place(raw.headers, raw.value) or _place({**raw.headers, "content-type": b""}, raw.value)
    return Row(
        gateway=place.gateway if place else None,
        stream=place.stream if place else None,
        first_sequence=place.first if place else None,
        sequence=place.last if place else None,
        lane=place.lane.value if place else None,
        source=text.get("ce_source"),
        id=text.get("ce_id"),
        device=text.get("device_id"),
        type=text.get("ce_type"),
        subject=text.get("ce_subject"),
        replayed=records.is_replayed(raw.headers),
        content_type=text.get("content-type"),
        adapter=text.get("orig_adapter"),
        outcome=Outcome.DEAD.value,
        reason=word(error.reason),
        detail=prose(error),
    )


def _place(headers: Mapping[str, bytes], value: bytes) -> records.Place | None:
    """The transport identity as far as it makes sense. Without a content type a gap record stands for its last number."""
    try:
        place = records.place_of(list(headers.items()), value)
    except Poison:
        return None
    if place is None or not 1 <= place.first <= place.last <= MAX_SEQUENCE:
        return None
    return place if len(place.gateway) + len(place.stream) <= _MAX_UNREADABLE_CHARS else None
