import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fogline.errors import Poison
from fogline.events.event import Event
from fogline_cloud.flows.parsers import MAX_READINGS, Leftover, Parser, Reading, Retry, Skip, json_values
from fogline_cloud.flows.sandbox.overruns import OVERRUNS_OF_DEVICE, OVERRUNS_OF_TYPE
from fogline_cloud.flows.sandbox.parser_runner import MAX_DETAIL_CHARS, TRIES, ParseResult, ParserRunner, checked
from fogline_cloud.flows.sandbox.time_limit import TimeLimit
from fogline_cloud.flows.tables.schema import EventOutcome

MakeEvent = Callable[..., Event]


@pytest.fixture
def limit() -> Iterator[TimeLimit]:
    with TimeLimit(0.02) as made:
        yield made


def runner(parser: Parser, limit: TimeLimit) -> ParserRunner:
    return ParserRunner({"p": parser}, limit)


def endless(event: Event) -> list[Reading]:
    while True:
        pass


def raising(error: BaseException) -> Parser:
    def parser(event: Event) -> list[Reading]:
        raise error

    return parser


def test_readings_get_ordinals(make_event: MakeEvent, limit: TimeLimit) -> None:
    answer = runner(lambda _: iter([Reading("a", 1), Reading("b", text="x", unit="u", time_ns=2_500)]), limit).run(
        "p", make_event()
    )
    assert answer.outcome is EventOutcome.OK
    assert answer.readings == [(0, "a", 1.0, None, None, None), (1, "b", None, "x", "u", 2)]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (Skip("not-ours", "why"), (EventOutcome.SKIP, "not-ours", "why")),
        (Skip("not-ours"), (EventOutcome.SKIP, "not-ours", "not-ours")),
        (Poison("bad-crc", "crc 1 is not 2"), (EventOutcome.DEAD, "bad-crc", "crc 1 is not 2")),
        (Retry(), (EventOutcome.SLOW, "retry", "parser p raised Retry 3 times")),
        (SystemExit(3), (EventOutcome.DEAD, "parser-error", None)),
        (RecursionError(), (EventOutcome.DEAD, "parser-error", None)),
        (Poison("x" * 500, "\ud800"), (EventOutcome.DEAD, "x" * 64, "?")),
    ],
)
def test_a_parsers_exception_determines_the_outcome(
    make_event: MakeEvent, limit: TimeLimit, error: BaseException, expected: tuple[EventOutcome, str, str | None]
) -> None:
    answer = runner(raising(error), limit).run("p", make_event())
    assert (answer.outcome, answer.reason) == expected[:2]
    assert expected[2] in (None, answer.detail)
    assert answer.readings == []


@pytest.mark.fault("D7")
def test_an_unknown_error_leaves_the_end_of_its_traceback(make_event: MakeEvent, limit: TimeLimit) -> None:
    answer = runner(raising(LookupError("x" * 10_000 + "the end")), limit).run("p", make_event())
    assert answer.reason == "parser-error"
    assert answer.detail is not None
    assert len(answer.detail) == MAX_DETAIL_CHARS
    assert answer.detail.rstrip().endswith("the end")


def test_a_retry_happens_at_once(make_event: MakeEvent, limit: TimeLimit) -> None:
    asked = 0

    def second_time(event: Event) -> list[Reading]:
        nonlocal asked
        asked += 1
        if asked < TRIES:
            raise Retry
        return [Reading("a", 1.0)]

    assert runner(second_time, limit).run("p", make_event()).outcome is EventOutcome.OK
    assert asked == TRIES


def test_the_time_limit_makes_an_event_slow(make_event: MakeEvent, limit: TimeLimit) -> None:
    answer = runner(endless, limit).run("p", make_event())
    assert (answer.outcome, answer.reason) == (EventOutcome.SLOW, "timeout")
    assert answer.parse_us > 0


def test_a_parser_is_not_called_again_for_a_device_that_keeps_overrunning(make_event: MakeEvent, limit: TimeLimit) -> None:
    mine = runner(lambda event: endless(event) if event.device == "bad" else [], limit)
    for _ in range(OVERRUNS_OF_DEVICE):
        assert mine.run("p", make_event(device="bad")).reason == "timeout"
    assert mine.run("p", make_event(device="bad")).reason == "not-asked"
    assert mine.run("p", make_event(device="good")).outcome is EventOutcome.OK


@pytest.mark.fault("D7")
def test_no_healthy_device_waits_for_others_that_overrun(make_event: MakeEvent, limit: TimeLimit) -> None:
    """F5: many devices of one content type overrun; every event of every healthy one is parsed."""
    mine = runner(lambda event: endless(event) if event.device.startswith("bad") else [], limit)
    outcomes: dict[str, set[tuple[EventOutcome, str | None]]] = {"bad": set(), "good": set()}
    for number in range(3 * OVERRUNS_OF_TYPE):
        for kind, found in outcomes.items():
            result = mine.run("p", make_event(device=f"{kind}-{number}"))
            found.add((result.outcome, result.reason))
    assert outcomes == {"bad": {(EventOutcome.SLOW, "timeout")}, "good": {(EventOutcome.OK, None)}}


def test_leftover_of_a_parser_is_named_beside_the_readings(make_event: MakeEvent, limit: TimeLimit) -> None:
    returned = [Leftover("row 2", "3 fields instead of 2"), Reading("t", 1.0), Leftover("\ud800", "x" * 5000)]
    result = runner(lambda _: iter(returned), limit).run("p", make_event())
    assert (result.outcome, result.reason) == (EventOutcome.OK, None)
    assert result.readings == [(0, "t", 1.0, None, None, None)]
    assert result.detail is not None
    assert result.detail.startswith("not understood: row 2 (3 fields instead of 2); ? (xx")
    assert len(result.detail) == MAX_DETAIL_CHARS


def test_calls_into_native_code_get_less_time_too_after_many_devices_blocked_there(make_event: MakeEvent) -> None:
    def timer(event: Event) -> list[Reading]:
        return [Reading("left", signal.getitimer(signal.ITIMER_PROF)[0])]

    with TimeLimit(60) as limit:
        mine = runner(timer, limit)
        before = mine.run("p", make_event())
        for number in range(2 * OVERRUNS_OF_TYPE):
            event = make_event(device=f"bad-{number}")
            mine.learn("p", event, ParseResult(EventOutcome.SLOW, int(limit.limit_s * 2e6), "timeout"))
        after = mine.run("p", make_event())
    assert after.readings[0][2] == pytest.approx(before.readings[0][2] / 2, rel=0.01)


@pytest.mark.parametrize(
    "reading",
    [
        Reading("", 1.0),
        Reading("m" * 1025, 1.0),
        Reading("m", float("nan")),
        Reading("m", float("inf")),
        Reading("m", 10**400),
        Reading("m", "1"),  # type: ignore[arg-type]
        Reading("m", text="x" * 65_537),
        Reading("m", text="\ud800"),
        Reading("m", text=b"x"),  # type: ignore[arg-type]
        Reading(5, 1.0),  # type: ignore[arg-type]
        Reading("m", 1.0, unit="u" * 65),
        Reading("m", 1.0, time_ns=10**21),
        Reading("m", 1.0, time_ns=1.5),  # type: ignore[arg-type]
    ],
)
@pytest.mark.fault("D8")
def test_a_reading_that_no_table_could_hold_is_named_and_costs_no_other(reading: Reading) -> None:
    readings, leftovers = checked([Reading("a", 1.0), reading, Reading("b", 2.0)])
    assert [each[:3] for each in readings] == [(0, "a", 1.0), (1, "b", 2.0)]
    assert [each.part for each in leftovers] == [str(reading.metric)[:1024]]


def test_an_event_of_which_nothing_is_understood_is_dead(make_event: MakeEvent, limit: TimeLimit) -> None:
    result = runner(lambda _: [Leftover("row 1", "no number"), Reading("m", float("nan"))], limit).run("p", make_event())
    assert (result.outcome, result.reason) == (EventOutcome.DEAD, "not-understood")
    assert result.detail == "not understood: row 1 (no number); m (its value is not a finite number)"


def test_a_result_that_is_not_a_reading_is_a_dead_letter(make_event: MakeEvent, limit: TimeLimit) -> None:
    odd: Any = lambda _: [("m", 1.0)]
    assert runner(odd, limit).run("p", make_event()).reason == "parser-error"
    nothing: Any = lambda _: None
    assert runner(nothing, limit).run("p", make_event()).reason == "parser-error"


def test_an_endless_parser_is_stopped_at_the_limit_of_readings(make_event: MakeEvent, limit: TimeLimit) -> None:
    def forever(event: Event) -> Iterator[Reading]:
        while True:
            yield Reading("m", 1.0)

    result = runner(forever, limit).run("p", make_event())
    assert result.outcome is EventOutcome.OK
    assert len(result.readings) == MAX_READINGS
    assert result.detail == "not understood: values after the first 1000 ([flow] max_readings = 1000)"
    assert checked([Reading("m", 1.0)] * MAX_READINGS)[1] == []


def test_parts_that_were_not_understood_take_no_place_of_readings() -> None:
    odd = [Leftover("row", "no number")] * (5 * MAX_READINGS)
    readings, leftovers = checked([*odd, *[Reading("m", 1.0)] * (MAX_READINGS + 1)])
    assert len(readings) == MAX_READINGS
    assert leftovers[:2] == [Leftover("values after the first 1000", "[flow] max_readings = 1000"), odd[0]]
    assert len(leftovers) <= MAX_DETAIL_CHARS


def test_names_are_bounded_in_all_by_the_size_of_the_body(make_event: MakeEvent) -> None:
    """A short document may name each of its values by a long path."""
    body = b'{"' + b"n" * 1000 + b'": [' + b"1," * 1000 + b"1]}"
    with TimeLimit(60) as limit:
        result = ParserRunner({"json": json_values.parse}, limit, 100_000).run("json", make_event(body))
    assert result.outcome is EventOutcome.OK
    assert sum(len(each[1]) for each in result.readings) <= 65_536 + 16 * len(body) < 1000 * 1000
    assert result.detail is not None
    assert "their names and texts are too long" in result.detail
