"""Asks a parser about one event, with a limit on its time and on our patience; whatever it does, there is an answer."""

import math
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

import msgspec

from fogline.errors import Poison
from fogline.event import Event
from fogline_cloud.flows.limit import Overrun, TimeLimit
from fogline_cloud.flows.parsers import (
    MAX_METRIC_CHARS,
    MAX_READINGS,
    MAX_TEXT_CHARS,
    MAX_UNIT_CHARS,
    Parser,
    Reading,
    Retry,
    Skip,
)
from fogline_cloud.flows.schema import Outcome

TRIES = 3
"""How often a parser that asks for another try is asked, in all."""
OVERRUNS_OF_DEVICE = 3
OVERRUNS_OF_PARSER = 30
MAX_DETAIL_CHARS = 4000
MAX_REASON_CHARS = 64
EARLIEST_NS, LATEST_NS = -62_135_596_800_000_000_000, 253_402_300_799_999_999_999
"""The first and the last moment of the years 1 to 9999."""

Checked = tuple[int, str, float | None, str | None, str | None, int | None]
"""A reading as the table holds it: ordinal, metric, value, text, unit, time in microseconds since 1970."""


class Answer(msgspec.Struct, frozen=True):
    """What became of asking. `readings` only where the outcome is ok."""

    outcome: Outcome
    parse_us: int = 0
    reason: str | None = None
    detail: str | None = None
    readings: list[Checked] = []


class Asking:
    """Asks parsers, one event after the other, in one thread.

    After `OVERRUNS_OF_DEVICE` overruns of one device, or `OVERRUNS_OF_PARSER` of one parser, theirs is not asked again
    by this object: the events are slow at once. It lives as long as a task, so the next micro-batch begins afresh.
    """

    def __init__(self, parsers: Mapping[str, Parser], limit: TimeLimit) -> None:
        self._parsers = parsers
        self._limit = limit
        self._by_device: Counter[tuple[str, str]] = Counter()
        self._by_parser: Counter[str] = Counter()

    def ask(self, name: str, event: Event) -> Answer:
        """Never raises because of the event or the parser."""
        if self._by_device[name, event.device] >= OVERRUNS_OF_DEVICE or self._by_parser[name] >= OVERRUNS_OF_PARSER:
            return Answer(Outcome.SLOW, 0, "not-asked", f"parser {name} was too slow too often; it was not asked again")
        parser = self._parsers[name]
        begun = time.perf_counter_ns()
        try:
            readings = self._limit.call(lambda: _ask(parser, event))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - a plugin may raise anything, and must not end the flow by it
            if isinstance(error, Overrun):
                self._by_device[name, event.device] += 1
                self._by_parser[name] += 1
            outcome, reason, detail = _judged(name, error)
            return Answer(outcome, _since_us(begun), word(reason), prose(detail))
        return Answer(Outcome.OK, _since_us(begun), readings=readings)


def _judged(name: str, error: BaseException) -> tuple[Outcome, str, str]:
    """Outcome, reason and detail of what a parser raised."""
    match error:
        case Skip():
            return Outcome.SKIP, error.reason, str(error)
        case Poison():
            return Outcome.DEAD, error.reason, str(error)
        case Retry():
            return Outcome.SLOW, "retry", str(error) or f"parser {name} asked for another try {TRIES} times"
        case Overrun():
            return Outcome.SLOW, "timeout", f"parser {name} did not finish in time"
    return Outcome.DEAD, "parser-error", "".join(traceback.format_exception(error))


def _since_us(begun_ns: int) -> int:
    return (time.perf_counter_ns() - begun_ns) // 1000


def _ask(parser: Parser, event: Event) -> list[Checked]:
    for _ in range(TRIES - 1):
        try:
            return check(parser(event))
        except Retry:
            continue
    return check(parser(event))


def check(readings: Iterable[Reading]) -> list[Checked]:
    """Readings as the table takes them. Raises `Poison` (`too-many`, `bad-reading`)."""
    found = list(islice(readings, MAX_READINGS + 1))
    if len(found) > MAX_READINGS:
        raise Poison("too-many", f"more than {MAX_READINGS} readings in one event")
    return [
        (
            ordinal,
            _text(reading.metric, "metric", MAX_METRIC_CHARS),
            None if reading.value is None else _number(reading.value),
            None if reading.text is None else _text(reading.text, "text", MAX_TEXT_CHARS),
            None if reading.unit is None else _text(reading.unit, "unit", MAX_UNIT_CHARS),
            None if reading.time_ns is None else _moment(reading.time_ns),
        )
        for ordinal, reading in enumerate(found)
    ]


def _text(text: Any, what: str, limit: int) -> str:
    if not isinstance(text, str) or len(text) > limit or (not text and what == "metric"):
        raise Poison("bad-reading", f"a reading's {what} is not a text of 1 to {limit} characters")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise Poison("bad-reading", f"a reading's {what} holds half of a surrogate pair") from None
    return text


_NUMBER = (int, float)


def _number(value: Any) -> float:
    try:
        number = float(value) if isinstance(value, _NUMBER) else math.nan
    except OverflowError:
        number = math.nan
    if not math.isfinite(number):
        raise Poison("bad-reading", "a reading's value is not a finite number")
    return number


def _moment(time_ns: Any) -> int:
    if not isinstance(time_ns, int) or not EARLIEST_NS <= time_ns <= LATEST_NS:
        raise Poison("bad-reading", "a reading's time is not within the years 1 to 9999")
    return time_ns // 1000


def prose(what: object) -> str:
    """Text for the column `detail`: its end, where a traceback says what happened, and always encodable."""
    return str(what)[-MAX_DETAIL_CHARS:].encode("utf-8", "replace").decode()


def word(reason: object) -> str:
    """Text for the column `reason`."""
    return str(reason)[:MAX_REASON_CHARS].encode("utf-8", "replace").decode()
