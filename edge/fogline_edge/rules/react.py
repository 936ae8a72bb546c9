"""Decides if a rule acts on an event. Pure.

The condition of a rule that reads `event` is watched for each device by itself, that of any other rule as a whole. A rule acts
when its condition becomes true. If it may not act then (`RATE`, `CHAIN`, `BUSY`), it tries again with the next event on which
the condition holds. Times are the gateway's age in milliseconds, which no setting of the clock changes.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from fogline.dead_letter import DEAD_TYPE
from fogline.errors import Misconfigured
from fogline.events.event import Arrival
from fogline.gateway.ledger import RuleOutcome
from fogline_edge.rule_settings import ReactTable, RuleTable
from fogline_edge.rules.cel import EvaluationError, RuleCondition, Tree, merge, pick
from fogline_edge.rules.payload import MISSING, Payload
from fogline_edge.rules.selection import RuleSelection

MAX_CHAIN = 4
"""Actions that may follow from one another: a rule does not act on the effect of the fourth."""
MAX_HOLDING = 256
"""Devices of one rule whose condition is remembered to hold. With more, the rule may act again for the oldest."""
MAX_PAYLOAD_BYTES = 64 * 1024
"""Largest payload that conditions read. A larger one has no `value` and no `text`."""
NO_TIME = "the clock is not known to be right, so the time of day is absent"
"""Problem of a rule that needs the time of day."""
READ_OF = {
    "event": ("device", "channel", "type", "lane", "adapter", "value", "text"),
    "last": ("value", "text", "age_s"),
    "time": ("hour", "minute", "weekday"),
}
"""The names that a condition may read below `event`, each `last.NAME`, and `time`."""
GATEWAY_ADAPTER = "fogline"
"""`adapter` of the events that the gateway makes: replies to commands, alarms of rules, statements, dead letters."""


class RuleState(msgspec.Struct, frozen=True):
    """The durable state of one rule. `tokens`, at age `filled_ms`: how often it may act.

    `holding`: the devices whose condition holds, the newest last; "" for a rule that does not read `event`. `commanded`: by
    device, the age at the last command, and the number of actions that led to it. `problem`: the last error in one line.
    """

    tokens: float
    filled_ms: int
    holding: tuple[str, ...] = ()
    commanded: dict[str, tuple[int, int]] = {}
    problem: str = ""


class LastValue(msgspec.Struct, frozen=True):
    """The last value of a device: the part of its payload that conditions read, and the age at which it came."""

    at_ms: int
    picked: dict[str, Any]


class LastInput(NamedTuple):
    """A last value that rules read. `key`: its device and channel. `tree`: the parts that they read."""

    key: str
    tree: Tree


@dataclass(frozen=True, slots=True)
class ReactRule:
    """One rule. `inputs`: by name, the key of the last value and its longest age."""

    table: ReactTable
    condition: RuleCondition
    inputs: dict[str, tuple[str, float]]

    @property
    def name(self) -> str:
        """Name of the rule."""
        return self.table.name

    def start(self, now_ms: int) -> RuleState:
        """Return the state of a rule that is new."""
        return RuleState(float(self.table.burst), now_ms)


class Seen(NamedTuple):
    """What rules know about one event. `time`: hour, minute and weekday, empty if the clock is not known to be right."""

    device: str
    event: dict[str, Any]
    last: Mapping[str, LastValue]
    time: dict[str, Any]
    now_ms: int


class Decision(NamedTuple):
    """The outcome for one event, None if the rule did nothing, and the rule's state after it."""

    outcome: RuleOutcome | None
    state: RuleState


class ReactRules:
    """The rules that act, in the order of the settings. Raises `Misconfigured`. Used on one thread."""

    def __init__(self, tables: Sequence[ReactTable]) -> None:
        self._inputs: dict[str, LastInput] = {}
        sources: dict[str, RuleTable] = {}
        self.rules = [self._rule(table, sources) for table in tables]
        self._selection = RuleSelection("rules.react", [(each.table, each) for each in self.rules])
        self._heard = RuleSelection("rules.react.last", [(sources[key], each) for key, each in self._inputs.items()])

    def _rule(self, table: ReactTable, sources: dict[str, RuleTable]) -> ReactRule:
        key = f"rules.react {table.name}: when"
        condition = RuleCondition(key, table.when)
        _check_reads(key, condition.reads)
        reads = condition.reads.get("last", {})
        for name in table.last if reads is None else reads:
            if name not in table.last:
                raise Misconfigured(f"{key}: last.{name} is not in [rules.react.last.{name}]: add its device")
        inputs = {}
        for name, source in table.last.items():
            place = f"{source.device} {source.channel}"
            inputs[name] = place, source.max_age_s * 1000
            sources[place] = RuleTable(name=table.name, device=source.device, channel=source.channel)
            known = self._inputs.setdefault(place, LastInput(place, {}))
            tree = reads.get(name, {}) if reads is not None else None
            merge(known.tree, {"value": None, "text": None} if tree is None else tree)
        return ReactRule(table, condition, inputs)

    def of(self, arrival: Arrival) -> tuple[ReactRule, ...]:
        """Return the rules that are evaluated on an event. Those on the gateway's own events name their type."""
        if arrival.type == DEAD_TYPE:
            return ()
        rules = self._selection.of(arrival)
        if rules and arrival.adapter == GATEWAY_ADAPTER:
            return tuple(each for each in rules if each.table.type is not None)
        return rules

    def has_input(self, key: str) -> bool:
        """Return True if a rule reads the last value of this key."""
        return key in self._inputs

    def heard(self, arrival: Arrival) -> tuple[LastInput, ...]:
        """Return the last values that an event replaces."""
        return self._heard.of(arrival) if self._inputs and arrival.adapter != GATEWAY_ADAPTER else ()


def _check_reads(key: str, reads: Tree) -> None:
    """Raise `Misconfigured` for a name that no event has: the condition would never hold."""
    below = {name: tree for name, tree in reads.items() if name != "last"}
    below |= {f"last.{name}": tree for name, tree in (reads.get("last") or {}).items()}
    for name, tree in below.items():
        known = READ_OF[name.partition(".")[0]]
        for unknown in sorted((tree or {}).keys() - set(known)):
            field = f": a field of the payload is {name}.value.{unknown}" if "value" in known else ""
            raise Misconfigured(f"{key}: {name} has no {unknown}, only {', '.join(known)}{field}")


def last_value(arrival: Arrival, tree: Tree, now_ms: int) -> LastValue:
    """Return what conditions read of an event as a last value. It is empty if the payload is too large."""
    try:
        picked = pick(view_of(arrival), tree)
    except EvaluationError:
        picked = {}
    return LastValue(now_ms, {name: picked[name] for name in ("value", "text") if name in picked})


def view_of(arrival: Arrival) -> dict[str, Any]:
    """Return an event as conditions see it."""
    view: dict[str, Any] = {
        "device": arrival.device,
        "channel": arrival.channel,
        "type": arrival.type,
        "lane": arrival.lane.value,
        "adapter": arrival.adapter,
    }
    if len(arrival.data) <= MAX_PAYLOAD_BYTES:
        document = Payload(arrival.content_type, arrival.data).document
        if document is not MISSING:
            view["value"] = document
        view["text"] = arrival.data.decode("utf-8", "replace")
    return view


def decide(rule: ReactRule, state: RuleState, seen: Seen, depth: int) -> Decision:
    """Decide about one event. `depth`: the number of actions that led to it."""
    table, now_ms = rule.table, seen.now_ms
    at_ms, _ = state.commanded.get(seen.device, (None, 0))
    if at_ms is not None and 0 <= now_ms - at_ms < table.echo_s * 1000:
        return Decision(RuleOutcome.ECHO, state)
    try:
        holds = rule.condition.holds({"event": seen.event, "last": dict(_last(rule, seen)), "time": seen.time})
    except EvaluationError as error:
        if "time" in rule.condition.reads and not seen.time:
            return Decision(RuleOutcome.CLOCK, _with_problem(state, NO_TIME))
        return Decision(RuleOutcome.ERROR, _with_problem(state, str(error)))
    return _judge(rule, state, seen, depth, holds=holds)


def _judge(rule: ReactRule, state: RuleState, seen: Seen, depth: int, *, holds: bool) -> Decision:
    """Decide about an event on which the condition holds, or does not."""
    table, now_ms = rule.table, seen.now_ms
    watched = seen.device if "event" in rule.condition.reads else ""
    held = watched in state.holding
    if not holds:
        return Decision(None, _without(state, watched) if held else state)
    if held and not table.every:
        return Decision(None, state)
    if depth >= MAX_CHAIN:
        return Decision(RuleOutcome.CHAIN, state)
    gained = max(0, now_ms - state.filled_ms) * table.per_minute / 60_000
    tokens = min(float(table.burst), state.tokens + gained)
    if tokens < 1:
        return Decision(RuleOutcome.RATE, state)
    holding = (*(each for each in state.holding if each != watched), watched)[-MAX_HOLDING:]
    acted = msgspec.structs.replace(state, tokens=tokens - 1, filled_ms=now_ms, holding=holding)
    return Decision(RuleOutcome.FIRED, acted)


def commanded(state: RuleState, device: str, now_ms: int, depth: int) -> RuleState:
    """Return the state of a rule that commands a device now."""
    others = {name: each for name, each in state.commanded.items() if name != device}
    kept = dict(list(others.items())[-(MAX_HOLDING - 1) :])
    return msgspec.structs.replace(state, commanded={**kept, device: (now_ms, depth)})


def depth_of(rules: Sequence[ReactRule], states: Mapping[str, RuleState], device: str, now_ms: int) -> int:
    """Return the number of actions that led to an event of a device, as far as the rules commanded it just now."""
    depths = [0]
    for rule in rules:
        state = states.get(rule.name)
        at_ms, depth = state.commanded.get(device, (None, 0)) if state is not None else (None, 0)
        if at_ms is not None and 0 <= now_ms - at_ms < rule.table.echo_s * 1000:
            depths.append(depth)
    return max(depths)


def _last(rule: ReactRule, seen: Seen) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, (key, max_age_ms) in rule.inputs.items():
        value = seen.last.get(key)
        if value is not None and 0 <= seen.now_ms - value.at_ms < max_age_ms:
            yield name, {**value.picked, "age_s": (seen.now_ms - value.at_ms) / 1000}


def _without(state: RuleState, device: str) -> RuleState:
    return msgspec.structs.replace(state, holding=tuple(each for each in state.holding if each != device))


def _with_problem(state: RuleState, problem: str) -> RuleState:
    return state if state.problem == problem else msgspec.structs.replace(state, problem=problem)
