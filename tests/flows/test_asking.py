from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fogline.errors import Poison
from fogline.event import Event
from fogline_cloud.flows.asking import (
    MAX_DETAIL_CHARS,
    OVERRUNS_OF_DEVICE,
    OVERRUNS_OF_PARSER,
    TRIES,
    Asking,
    check,
)
from fogline_cloud.flows.limit import TimeLimit
from fogline_cloud.flows.parsers import MAX_READINGS, Parser, Reading, Retry, Skip
from fogline_cloud.flows.schema import Outcome

MakeEvent = Callable[..., Event]


@pytest.fixture
def limit() -> Iterator[TimeLimit]:
    with TimeLimit(0.02) as made:
        yield made


def asking(parser: Parser, limit: TimeLimit) -> Asking:
    return Asking({"p": parser}, limit)


def endless(event: Event) -> list[Reading]:
    while True:
        pass


def raising(error: BaseException) -> Parser:
    def parser(event: Event) -> list[Reading]:
        raise error

    return parser


def test_readings_get_ordinals(make_event: MakeEvent, limit: TimeLimit) -> None:
    answer = asking(lambda _: iter([Reading("a", 1), Reading("b", text="x", unit="u", time_ns=2_500)]), limit).ask(
        "p", make_event()
    )
    assert answer.outcome is Outcome.OK
    assert answer.readings == [(0, "a", 1.0, None, None, None), (1, "b", None, "x", "u", 2)]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (Skip("not-ours", "why"), (Outcome.SKIP, "not-ours", "why")),
        (Skip("not-ours"), (Outcome.SKIP, "not-ours", "not-ours")),
        (Poison("bad-crc", "crc 1 is not 2"), (Outcome.DEAD, "bad-crc", "crc 1 is not 2")),
        (Retry(), (Outcome.SLOW, "retry", "parser p asked for another try 3 times")),
        (SystemExit(3), (Outcome.DEAD, "parser-error", None)),
        (RecursionError(), (Outcome.DEAD, "parser-error", None)),
        (Poison("x" * 500, "\ud800"), (Outcome.DEAD, "x" * 64, "?")),
    ],
)
def test_what_a_parser_raises_decides(
    make_event: MakeEvent, limit: TimeLimit, error: BaseException, expected: tuple[Outcome, str, str | None]
) -> None:
    answer = asking(raising(error), limit).ask("p", make_event())
    assert (answer.outcome, answer.reason) == expected[:2]
    assert expected[2] in (None, answer.detail)
    assert answer.readings == []


@pytest.mark.fault("D7")
def test_an_unknown_error_leaves_the_end_of_its_traceback(make_event: MakeEvent, limit: TimeLimit) -> None:
    answer = asking(raising(LookupError("x" * 10_000 + "the end")), limit).ask("p", make_event())
    assert answer.reason == "parser-error"
    assert answer.detail is not None
    assert len(answer.detail) == MAX_DETAIL_CHARS
    assert answer.detail.rstrip().endswith("the end")


def test_another_try_is_given_at_once(make_event: MakeEvent, limit: TimeLimit) -> None:
    asked = 0

    def second_time(event: Event) -> list[Reading]:
        nonlocal asked
        asked += 1
        if asked < TRIES:
            raise Retry
        return [Reading("a", 1.0)]

    assert asking(second_time, limit).ask("p", make_event()).outcome is Outcome.OK
    assert asked == TRIES


def test_the_time_limit_makes_an_event_slow(make_event: MakeEvent, limit: TimeLimit) -> None:
    answer = asking(endless, limit).ask("p", make_event())
    assert (answer.outcome, answer.reason) == (Outcome.SLOW, "timeout")
    assert answer.parse_us > 0


def test_a_device_that_keeps_overrunning_is_not_asked_again(make_event: MakeEvent, limit: TimeLimit) -> None:
    mine = asking(lambda event: endless(event) if event.device == "bad" else [], limit)
    for _ in range(OVERRUNS_OF_DEVICE):
        assert mine.ask("p", make_event(device="bad")).reason == "timeout"
    assert mine.ask("p", make_event(device="bad")).reason == "not-asked"
    assert mine.ask("p", make_event(device="good")).outcome is Outcome.OK


def test_a_parser_that_keeps_overrunning_is_not_asked_again(make_event: MakeEvent, limit: TimeLimit) -> None:
    mine = asking(endless, limit)
    reasons = [mine.ask("p", make_event(device=f"d{n}")).reason for n in range(OVERRUNS_OF_PARSER + 2)]
    assert reasons == ["timeout"] * OVERRUNS_OF_PARSER + ["not-asked"] * 2


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
def test_a_reading_that_no_table_could_hold_is_refused(reading: Reading) -> None:
    with pytest.raises(Poison) as refused:
        check([reading])
    assert refused.value.reason == "bad-reading"


def test_what_is_no_reading_at_all_is_a_dead_letter(make_event: MakeEvent, limit: TimeLimit) -> None:
    odd: Any = lambda _: [("m", 1.0)]
    assert asking(odd, limit).ask("p", make_event()).reason == "parser-error"
    nothing: Any = lambda _: None
    assert asking(nothing, limit).ask("p", make_event()).reason == "parser-error"


def test_a_parser_without_end_is_cut_at_the_most_readings(make_event: MakeEvent, limit: TimeLimit) -> None:
    def forever(event: Event) -> Iterator[Reading]:
        while True:
            yield Reading("m", 1.0)

    assert asking(forever, limit).ask("p", make_event()).reason == "too-many"
    assert len(check([Reading("m", 1.0)] * MAX_READINGS)) == MAX_READINGS
