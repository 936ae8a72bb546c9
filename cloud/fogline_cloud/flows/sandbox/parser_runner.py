"""Runs a parser on one event with a time limit. Returns a result, whatever the parser does in Python."""

import math
import time
import traceback
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from fogline.errors import Poison
from fogline.events.event import Event
from fogline_cloud.flows import parsers as limits
from fogline_cloud.flows.parsers import Leftover, Parser, Reading, Retry, Skip, takes_large_bodies
from fogline_cloud.flows.sandbox.overruns import OverrunBudget
from fogline_cloud.flows.sandbox.time_limit import Overrun, TimeLimit
from fogline_cloud.flows.tables.schema import EventOutcome

TRIES = 3
"""Number of times that a parser that raises `Retry` is called, in all."""
KILLED = "killed"
"""Reason of an event whose parser ended its process."""
NO_MEMORY = "memory"
"""Reason of an event whose parser got no memory."""
MAX_DETAIL_CHARS = 4000
_MAX_LEFTOVERS = MAX_DETAIL_CHARS // 4  # more have no room in `detail`
MAX_REASON_CHARS = 64
EARLIEST_NS, LATEST_NS = -62_135_596_800_000_000_000, 253_402_300_799_999_999_999
"""The first and the last time within the years 1 to 9999."""

CheckedReading = tuple[int, str, float | None, str | None, str | None, int | None]
"""A reading of column `readings`: ordinal, metric, value, text, unit, time in microseconds since 1970."""


class ParseResult(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Result for one event. `readings` is empty unless the outcome is ok. `detail` of an ok one names what is left over."""

    outcome: EventOutcome
    parse_us: int = 0
    reason: str | None = None
    detail: str | None = None
    readings: list[CheckedReading] = []


class ParserRunner:
    """Runs parsers for the events of one task (one micro-batch), one event after the other. Not thread-safe.

    `most`: largest number of readings of one event.
    """

    def __init__(self, parsers: Mapping[str, Parser], limit: TimeLimit, most: int = limits.MAX_READINGS) -> None:
        self._parsers = parsers
        self._limit = limit
        self._most = most
        self._overruns = OverrunBudget()

    def run(self, name: str, event: Event) -> ParseResult:
        """Run the parser of this name. Never raises because of the event or the parser."""
        share = self._overruns.share(name, event)
        if not share:
            detail = f"parser {name} used up its time for this device in this task and was not called for this event"
            return ParseResult(EventOutcome.SLOW, 0, "not-asked", detail)
        parser = self._parsers[name]
        if event.dataref is not None and not takes_large_bodies(parser):
            return ParseResult(EventOutcome.SKIP, 0, "large-body", f"parser {name} takes no large bodies")
        begun = time.perf_counter_ns()
        try:
            readings, leftovers = self._limit.call(lambda: _parse(parser, event, self._most), share)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - a plugin may raise anything, and must not end the flow
            if isinstance(error, Overrun):
                self._overruns.overran(name, event, share)
                error = Overrun(self._limit.limit_s * share)
            outcome, reason, detail = _outcome_of(name, error)
            return ParseResult(outcome, _since_us(begun), reason_text(reason), detail_text(detail))
        return ParseResult(EventOutcome.OK, _since_us(begun), detail=leftovers, readings=readings)

    def with_body(self, name: str, event: Event) -> tuple[str, Event]:
        """Return the name, and the event with its large body in `data` if the parser takes it. Raises as `event.body`."""
        if event.dataref is None or not takes_large_bodies(self._parsers[name]):
            return name, event
        return name, msgspec.structs.replace(event, data=event.body(), dataref=None)

    def failed(self, name: str, error: BaseException) -> ParseResult:
        """Return the result for an event whose parser was not called because of this error."""
        outcome, reason, detail = _outcome_of(name, error)
        return ParseResult(outcome, 0, reason_text(reason), detail_text(detail))

    def learn(self, name: str, event: Event, result: ParseResult) -> None:
        """Count a result of a child process, whose own counts end with it."""
        if result.reason == "timeout":
            self._overruns.overran(name, event, min(1.0, result.parse_us / 1e6 / self._limit.limit_s))
        elif result.reason in {KILLED, NO_MEMORY}:
            self._overruns.overran(name, event, 1.0)


def _outcome_of(name: str, error: BaseException) -> tuple[EventOutcome, str, str]:
    match error:
        case Skip():
            return EventOutcome.SKIP, error.reason, str(error)
        case Poison():
            return EventOutcome.DEAD, error.reason, str(error)
        case Retry():
            return EventOutcome.SLOW, "retry", str(error) or f"parser {name} raised Retry {TRIES} times"
        case Overrun():
            return EventOutcome.SLOW, "timeout", f"parser {name} did not finish within {error} s"
        case MemoryError():
            return EventOutcome.DEAD, NO_MEMORY, f"parser {name} asked for more memory than [flow] parse_memory_mib allows"
    return EventOutcome.DEAD, "parser-error", "".join(traceback.format_exception(error))


def _since_us(begun_ns: int) -> int:
    return (time.perf_counter_ns() - begun_ns) // 1000


def _parse(parser: Parser, event: Event, most: int) -> tuple[list[CheckedReading], str | None]:
    for _ in range(TRIES - 1):
        try:
            return _parse_once(parser, event, most)
        except Retry:
            continue
    return _parse_once(parser, event, most)


def _parse_once(parser: Parser, event: Event, most: int) -> tuple[list[CheckedReading], str | None]:
    most_chars = limits.MAX_CHARS + limits.CHARS_PER_BYTE * len(event.data)
    readings, leftovers = checked(parser(event), most, most_chars)
    if not leftovers:
        return readings, None
    text = ("not understood: " + "; ".join(f"{each.part} ({each.why})" for each in leftovers))[:MAX_DETAIL_CHARS]
    if not readings:
        raise Poison("not-understood", text)
    return readings, detail_text(text)


def checked(
    returned: Iterable[Reading | Leftover], most: int = limits.MAX_READINGS, most_chars: int = limits.MAX_CHARS
) -> tuple[list[CheckedReading], list[Leftover]]:
    """Return the readings, checked and converted for the table, and the rest.

    A reading that the table cannot hold belongs to the rest, and so does what follows the first `most` readings, or those with
    `most_chars` characters in all. The parser is not asked for more than that.
    """
    readings: list[CheckedReading] = []
    leftovers: list[Leftover] = []
    for each in returned:
        if isinstance(each, Leftover):
            if len(leftovers) < _MAX_LEFTOVERS:
                leftovers.append(each)
            continue
        try:
            found = _checked_reading(len(readings), each)
        except _BadReading as error:
            if len(leftovers) < _MAX_LEFTOVERS:
                leftovers.append(Leftover(str(each.metric)[: limits.MAX_METRIC_CHARS], str(error)))
            continue
        most_chars -= len(found[1]) + len(found[3] or "") + len(found[4] or "")
        if most_chars < 0 or len(readings) == most:
            why = f"[flow] max_readings = {most}" if most_chars >= 0 else "their names and texts are too long"
            leftovers.insert(0, Leftover(f"values after the first {len(readings)}", why))
            break
        readings.append(found)
    return readings, leftovers


class _BadReading(Exception):
    """A reading that the table cannot hold. The message says why."""


def _checked_reading(ordinal: int, reading: Reading) -> CheckedReading:
    value, text, unit, time_ns = reading.value, reading.text, reading.unit, reading.time_ns
    return (
        ordinal,
        _text(reading.metric, "metric", limits.MAX_METRIC_CHARS),
        None if value is None else _number(value),
        None if text is None else _text(text, "text", limits.MAX_TEXT_CHARS),
        None if unit is None else _text(unit, "unit", limits.MAX_UNIT_CHARS),
        None if time_ns is None else _time_us(time_ns),
    )


def _text(text: Any, field: str, limit: int) -> str:
    if not isinstance(text, str) or len(text) > limit or (not text and field == "metric"):
        raise _BadReading(f"its {field} is not a text of up to {limit} characters")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise _BadReading(f"its {field} is not valid Unicode") from None
    return text


_NUMBER = (int, float)


def _number(value: Any) -> float:
    try:
        number = float(value) if isinstance(value, _NUMBER) else math.nan
    except OverflowError:
        number = math.nan
    if not math.isfinite(number):
        raise _BadReading("its value is not a finite number")
    return number


def _time_us(time_ns: Any) -> int:
    if not isinstance(time_ns, int) or not EARLIEST_NS <= time_ns <= LATEST_NS:
        raise _BadReading("its time is not within the years 1 to 9999")
    return time_ns // 1000


def detail_text(detail: object) -> str:
    """Return encodable text for column `detail`. Long text keeps its end, where a traceback has the exception."""
    return str(detail)[-MAX_DETAIL_CHARS:].encode("utf-8", "replace").decode()


def reason_text(reason: object) -> str:
    """Return encodable text for column `reason`."""
    return str(reason)[:MAX_REASON_CHARS].encode("utf-8", "replace").decode()
