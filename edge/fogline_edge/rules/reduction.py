"""Decides which events a rule of `[[rules.reduce]]` keeps back: by report on change, by sampling, or for an aggregate.

The last event of each device and channel is remembered in memory only, because a start may send an unchanged value once more,
but must never keep a changed one back. Alarms, replies and dead letters are never reduced. Used on the writer's thread.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from fogline.dead_letter import DEAD_TYPE
from fogline.errors import Misconfigured
from fogline.events.event import POSSIBLE_DUPLICATE, Arrival, Lane
from fogline.events.report_on_change import Reported, ReportPolicy, is_news
from fogline.gateway.ledger import RuleOutcome
from fogline_edge.rule_settings import ReduceTable
from fogline_edge.rules.change import Band, comparable, has_changed
from fogline_edge.rules.explanation import RuleStep
from fogline_edge.rules.fields import Field, PointerField, parse_field
from fogline_edge.rules.payload import MISSING, Payload
from fogline_edge.rules.selection import RuleSelection
from fogline_edge.rules.windows import WindowRule

KIND = "rules.reduce"
MAX_REMEMBERED = 32_768
"""Devices' channels whose last event is remembered, for all rules together. Of others, each event is stored."""
_LANES = (Lane.TELEMETRY, Lane.BULK)


class LastEvent(NamedTuple):
    """The last stored event of a rule, device and channel, and how many were kept back since."""

    at_ms: int
    values: tuple[Any, ...]
    kept_back: int = 0


@dataclass(frozen=True, slots=True)
class ChangeRule:
    """Report on change, and intervals. Without `fields`, the payload is compared. `keep_s`: for which events are kept."""

    name: str
    fields: tuple[Field, ...]
    policy: ReportPolicy
    band: Band
    keep_s: int = 0

    def values(self, payload: Payload) -> tuple[Any, ...] | None:
        """Return what is compared; None if the event has none of the fields."""
        if not self.fields:
            return (comparable(payload.data),)
        values = tuple(comparable(payload.value(each)) for each in self.fields)
        return values if any(each is not MISSING for each in values) else None

    def is_news(self, last: LastEvent, values: Sequence[Any], age_ms: int) -> bool:
        """Return True if the event is stored."""
        changed = has_changed(self.band, last.values, values)
        return is_news(self.policy, Reported(last.at_ms), age_ms, changed=changed)

    def sentence(self, values: Sequence[Any]) -> str:
        """Return what the rule does, in one sentence."""
        del values
        names = ", ".join(each.text or "the document" for each in self.fields) or "the payload"
        parts = [f"{names} changed {self.band.sentence()} since the last stored event"] if self.policy.on_change else []
        if self.policy.max_interval_s is not None:
            parts.append(f"{self.policy.max_interval_s:g} s have passed")
        sooner = f", not sooner than {self.policy.min_interval_s:g} s after it" if self.policy.min_interval_s else ""
        return f"it is stored if {' or '.join(parts) or 'it is the next one'}{sooner}; else it is counted as reduced"


@dataclass(frozen=True, slots=True)
class SampleRule:
    """Every n-th event."""

    name: str
    every: int
    keep_s: int = 0

    def values(self, payload: Payload) -> tuple[Any, ...]:
        """Return nothing: all events are the same."""
        del payload
        return ()

    def is_news(self, last: LastEvent, values: Sequence[Any], age_ms: int) -> bool:
        """Return True if the event is stored."""
        del values, age_ms
        return last.kept_back + 1 >= self.every

    def sentence(self, values: Sequence[Any]) -> str:
        """Return what the rule does, in one sentence."""
        del values
        return f"one of {self.every} events is stored; the others are counted as reduced"


ReduceRule = ChangeRule | SampleRule | WindowRule


class ReduceDecision(NamedTuple):
    """What a rule does with an event. `outcome`: UNREADABLE if the event is stored, because the rule cannot read it.

    `values`: the numbers for the window, if the rule has windows.
    """

    rule: ReduceRule
    outcome: RuleOutcome
    values: tuple[float | None, ...] = ()


class Reduction:
    """All rules that reduce. Call `committed` after each commit and `rolled_back` after each rollback.

    Raises `Misconfigured`. `windows`: some rule has windows.
    """

    def __init__(self, tables: Sequence[ReduceTable]) -> None:
        rules = [(each, make_rule(each)) for each in tables]
        self.windows = any(isinstance(rule, WindowRule) for _, rule in rules)
        self._selection = RuleSelection(KIND, rules)
        self._last: OrderedDict[tuple[str, str, str], LastEvent] = OrderedDict()
        self._undo: list[tuple[tuple[str, str, str], LastEvent | None]] = []

    def applies(self, arrival: Arrival) -> bool:
        """Return True if some rule applies to an arrival."""
        return arrival.lane in _LANES and arrival.type != DEAD_TYPE and bool(self._selection.of(arrival))

    def decide(self, arrival: Arrival, age_ms: int) -> ReduceDecision | None:
        """Return what the first rule does that can read the event; None if it is stored as if there were no rule.

        An event that may repeat an earlier one is stored, with the mark that says so, because an aggregate cannot say it.
        """
        if POSSIBLE_DUPLICATE in (arrival.properties or ""):
            return None
        payload, rules = Payload(arrival.content_type, arrival.data), self._selection.of(arrival)
        for rule in rules:
            values = rule.values(payload)
            if values is None:
                continue
            if isinstance(rule, WindowRule):
                return ReduceDecision(rule, RuleOutcome.MERGED, values)
            return self._compared(rule, arrival, values, age_ms)
        return ReduceDecision(rules[0], RuleOutcome.UNREADABLE)

    def explain(self, arrival: Arrival) -> Iterator[RuleStep]:
        """Yield what these rules do with an arrival, as far as they know without the events before it."""
        if not self.applies(arrival):
            return
        payload = Payload(arrival.content_type, arrival.data)
        for rule in self._selection.of(arrival):
            if (values := rule.values(payload)) is not None:
                yield RuleStep("reduce", rule.name, rule.sentence(values))
                return
            yield RuleStep("reduce", rule.name, "the event has none of the fields of this rule: the rule leaves it as it is")

    def committed(self) -> None:
        """Keep what was remembered in the transaction."""
        self._undo.clear()

    def rolled_back(self) -> None:
        """Forget what was remembered in the transaction."""
        for key, former in reversed(self._undo):
            if former is None:
                self._last.pop(key, None)
            else:
                self._last[key] = former
        self._undo.clear()

    def _compared(
        self, rule: ChangeRule | SampleRule, arrival: Arrival, values: tuple[Any, ...], age_ms: int
    ) -> ReduceDecision | None:
        key = (rule.name, arrival.device, arrival.channel)
        last = self._last.get(key)
        if last is None or rule.is_news(last, values, age_ms):
            self._remember(key, last, LastEvent(age_ms, values))
            return None
        self._remember(key, last, last._replace(kept_back=last.kept_back + 1))
        return ReduceDecision(rule, RuleOutcome.REDUCED)

    def _remember(self, key: tuple[str, str, str], former: LastEvent | None, now: LastEvent) -> None:
        self._undo.append((key, former))
        self._last[key] = now
        self._last.move_to_end(key)
        if len(self._last) > MAX_REMEMBERED:
            self._last.popitem(last=False)


def make_rule(table: ReduceTable) -> ReduceRule:
    """Return the rule of a table. Raises `Misconfigured`, which names the table and the key."""
    place = f"{KIND} {table.name}"
    band = Band(table.change, table.change_percent, table.dead_band)
    reports = table.on_change or band != Band() or table.min_interval_s > 0
    kinds = [table.every is not None, table.window_s is not None, reports]
    if sum(kinds) != 1:
        example = "every = 10, window_s = 60, or one or more of on_change = true, change = 0.5 and min_interval_s = 10"
        raise Misconfigured(f"{place}: expected one kind of reduction: {example}")
    if table.max_interval_s is not None and not (table.on_change or band != Band()):
        raise Misconfigured(f"{place}: max_interval_s = {table.max_interval_s:g} needs on_change = true or change")
    fields = tuple(parse_field(each, f"{place}: fields") for each in table.fields)
    keep_s = _keep_s(table)
    if band != Band() and not fields:
        raise Misconfigured(f"{place}: change, change_percent and dead_band need fields, such as fields = ['/temperature']")
    if table.window_s is not None:
        return _window_rule(table, place, fields, table.window_s)
    if table.every is not None:
        return SampleRule(table.name, table.every, keep_s)
    changes = table.on_change or band != Band()
    policy = ReportPolicy(min_interval_s=table.min_interval_s, on_change=changes, max_interval_s=table.max_interval_s)
    return ChangeRule(table.name, fields, policy, band, keep_s)


def _window_rule(table: ReduceTable, place: str, fields: tuple[Field, ...], window_s: int) -> WindowRule:
    pointers = tuple(each for each in fields if isinstance(each, PointerField))
    if not fields or len(pointers) != len(fields):
        raise Misconfigured(f"{place}: window_s needs fields with numbers, such as fields = ['/temperature']")
    names = tuple(".".join(each.tokens) or "value" for each in pointers)
    if len(set(names)) < len(names):
        raise Misconfigured(f"{place}: two of the fields {', '.join(names)} have the same name in the aggregate")
    late_s = window_s if table.late_s is None else table.late_s
    aggregates = tuple(dict.fromkeys(table.aggregates))
    return WindowRule(table.name, pointers, names, aggregates, window_s * 1000, late_s * 1000, _keep_s(table))


def _keep_s(table: ReduceTable) -> int:
    return 0 if table.keep_days is None else round(table.keep_days * 86_400)
