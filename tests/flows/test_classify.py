from collections.abc import Callable

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fogline.dead_letter import DEAD_CONTENT_TYPE, DeadLetter
from fogline.events.bridge_notice import notice_event
from fogline.events.event import Event, Lane, parse_rfc3339
from fogline.events.gap import Gap, GapReason, encode_gap, gap_event
from fogline.gateway.ledger import STATEMENT_CONTENT_TYPE, Counts, Statement, encode_statement
from fogline_cloud.flows.sandbox.parser_runner import ParseResult
from fogline_cloud.flows.tables.schema import EventOutcome
from fogline_cloud.flows.worker.classify import EventRow, Raw, decide
from fogline_cloud.flows.worker.parser_choice import chooser
from fogline_cloud.kafka import records

MakeEvent = Callable[..., Event]
INGESTED_NS = parse_rfc3339("2026-02-03T04:05:06Z")
READING = (0, "t", 21.5, None, None, None)


def ok(name: str, event: Event) -> ParseResult:
    return ParseResult(EventOutcome.OK, 7, readings=[READING])


def never(name: str, event: Event) -> ParseResult:
    raise AssertionError(f"parser {name} was asked")


def row_of(headers: records.Headers, value: bytes, ask: Callable[[str, Event], ParseResult] = never) -> EventRow:
    return decide(Raw(dict(headers), value, INGESTED_NS, lambda: "topic-3-99"), "t", chooser({}), ask)


def decided(event: Event, ask: Callable[[str, Event], ParseResult] = never) -> EventRow:
    record = records.record_of(event)
    return row_of(record.headers, record.value, ask)


def test_an_event_keeps_every_attribute(make_event: MakeEvent) -> None:
    row = decided(make_event(time="2026-01-02T03:04:05Z", replayed=True, lane=Lane.ALARM, sequence=9), ok)
    assert row == EventRow(
        gateway="gw-1",
        stream="00000000000000aa",
        first_sequence=9,
        sequence=9,
        lane="alarm",
        source="/t/devices/d-1",
        id="ID-9",
        device="d-1",
        type="telemetry",
        subject="air",
        dedup="strong",
        replayed=True,
        time=parse_rfc3339("2026-01-02T03:04:05Z") // 1000,
        recordedtime=parse_rfc3339("2026-01-02T03:04:05.000006Z") // 1000,
        timequality="synced",
        content_type="application/json",
        adapter="mqtt",
        outcome="ok",
        parser="json",
        parse_us=7,
        readings=[READING],
    )


@pytest.mark.parametrize(
    ("given", "kept"), [("a=&b=1", {"a": "", "b": "1"}), ("a=%26&b=x%20y", {"a": "&", "b": "x y"}), ("", None), (None, None)]
)
def test_properties_of_a_message_keep_their_names_and_values(
    make_event: MakeEvent, given: str | None, kept: dict[str, str] | None
) -> None:
    assert decided(make_event(properties=given), ok).properties == kept


def test_no_parser_means_skip(make_event: MakeEvent) -> None:
    row = decided(make_event(content_type="image/png"))
    assert (row.outcome, row.reason, row.parser, row.parse_us) == ("skip", "no-parser", None, None)


def test_the_parsers_result_is_the_outcome(make_event: MakeEvent) -> None:
    row = decided(make_event(), lambda *_: ParseResult(EventOutcome.SLOW, 300_000, "timeout", "too long"))
    assert (row.outcome, row.reason, row.detail, row.parser, row.parse_us) == ("slow", "timeout", "too long", "json", 300_000)


def test_a_gap_stands_for_its_range(make_event: MakeEvent) -> None:
    gap = Gap(GapReason.DROPPED, 3, 8, "the outbox was full")
    stamp = {"tenant": "t", "gateway": "gw-1", "stream": "00000000000000aa", "lane": Lane.BULK, "now_ns": INGESTED_NS}
    row = decided(gap_event(gap, **stamp))
    assert (row.outcome, row.reason, row.detail) == ("gap", "dropped", "the outbox was full")
    assert (row.first_sequence, row.sequence, row.device, row.lane) == (3, 8, "gw-1", "bulk")


def test_an_unreadable_gap_record_keeps_its_sequence(make_event: MakeEvent) -> None:
    row = decided(make_event(b"{}", content_type="application/vnd.fogline-gap+json", sequence=8))
    assert (row.outcome, row.reason, row.first_sequence, row.sequence) == ("dead", "malformed", 8, 8)


def test_a_gap_record_that_ends_before_it_begins_is_dead(make_event: MakeEvent) -> None:
    body = encode_gap(Gap(GapReason.DROPPED, 9, 12))
    row = decided(make_event(body, content_type="application/vnd.fogline-gap+json", sequence=8))
    assert (row.outcome, row.first_sequence, row.sequence) == ("dead", 8, 8)


def test_a_statement_is_not_parsed(make_event: MakeEvent) -> None:
    body = encode_statement(Statement("00000000000000aa", "telemetry", Counts(stored=4)))
    row = decided(make_event(body, content_type=STATEMENT_CONTENT_TYPE))
    assert (row.outcome, row.reason, row.readings) == ("statement", None, [])
    assert decided(make_event(b"[]", content_type=STATEMENT_CONTENT_TYPE)).outcome == "dead"


def test_a_notice_of_a_bridge_is_skipped() -> None:
    row = decided(notice_event("a word", tenant="t", now_ns=INGESTED_NS))
    assert (row.outcome, row.reason, row.detail, row.stream, row.sequence) == ("skip", "notice", "a word", None, None)


def test_a_dead_letter_of_the_gateway_keeps_its_reason(make_event: MakeEvent) -> None:
    letter = DeadLetter(reason="bad-identifier", detail="no such device", sender="'x'", channel="'y'", body_base64="")
    row = decided(make_event(msgspec.json.encode(letter), content_type=DEAD_CONTENT_TYPE))
    assert (row.outcome, row.reason, row.detail, row.parser) == ("dead", "bad-identifier", "no such device", None)
    assert decided(make_event(b"?", content_type=DEAD_CONTENT_TYPE)).reason == "malformed"


def test_a_record_of_a_foreign_client_is_parsed_without_a_stream_position(make_event: MakeEvent) -> None:
    row = row_of([("device_id", b"d-9"), ("content-type", b"application/json")], b"1", ok)
    assert (row.outcome, row.source, row.id) == ("ok", "/t/devices/d-9", "topic-3-99")
    assert (row.gateway, row.stream, row.sequence, row.lane) == (None, None, None, None)
    assert row.recordedtime == INGESTED_NS // 1000


def test_a_foreign_record_keeps_its_own_id() -> None:
    assert row_of([("device_id", b"d-9"), ("ce_id", b"mine")], b"1", ok).id == "mine"


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("ce_sequence", b"x"),
        ("ce_sequence", b"0"),
        ("ce_sequence", b"-1"),
        ("ce_sequence", b"9" * 30),
        ("ce_sequence", b"9" * 5000),
        ("ce_lane", b"fast"),
        ("ce_id", b""),
        ("ce_timequality", b"perhaps"),
        ("ce_recordedtime", b"yesterday"),
        ("ce_recordedtime", b"2026-01-02T03:04:05"),
        ("ce_time", b"99999-01-01T00:00:00Z"),
        ("device_id", b"a b/\x00"),
        ("device_id", b"\xff"),
    ],
)
def test_invalid_headers_are_a_dead_letter(make_event: MakeEvent, header: str, value: bytes) -> None:
    headers = {**dict(records.record_of(make_event(sequence=5)).headers), header: value}
    row = row_of(list(headers.items()), b"1")
    assert row.outcome == "dead"
    assert row.reason in ("malformed", "bad-identifier")
    assert (row.sequence, row.stream) == ((None, None) if header in ("ce_sequence", "ce_lane") else (5, "00000000000000aa"))


@pytest.mark.parametrize(
    "missing", ["ce_id", "ce_gateway", "ce_sequence", "ce_lane", "device_id", "content-type", "ce_recordedtime"]
)
def test_a_missing_header_is_a_dead_letter(make_event: MakeEvent, missing: str) -> None:
    headers = [pair for pair in records.record_of(make_event()).headers if pair[0] != missing]
    assert row_of(headers, b"1").outcome == "dead"


_names = st.sampled_from(["ce_id", "ce_stream", "ce_sequence", "ce_lane", "ce_time", "device_id", "content-type", "ce_gateway"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changed=st.dictionaries(_names, st.binary(max_size=30)), dropped=st.sets(_names), value=st.binary(max_size=60))
def test_hostile_records_always_get_a_row(
    make_event: MakeEvent, changed: dict[str, bytes], dropped: set[str], value: bytes
) -> None:
    headers = {**dict(records.record_of(make_event(sequence=5)).headers), **changed}
    row = row_of([pair for pair in headers.items() if pair[0] not in dropped], value, ok)
    assert row.outcome in set(EventOutcome)
    for text in (row.id, row.device, row.subject, row.detail, row.stream):
        assert text is None or text.encode() is not None
    assert row.sequence is None or 1 <= row.sequence < 2**63


def test_an_error_of_the_classification_itself_is_not_hidden(make_event: MakeEvent) -> None:
    with pytest.raises(LookupError):
        decided(make_event(), lambda *_: (_ for _ in ()).throw(LookupError()))


def test_statement_that_is_nested_too_deep_is_dead(make_event: MakeEvent) -> None:
    body = b'{"x-unknown":' + b"[" * 2000 + b"]" * 2000 + b"}"
    row = decided(make_event(body, content_type=STATEMENT_CONTENT_TYPE))
    assert (row.outcome, row.reason) == (EventOutcome.DEAD, "malformed")
