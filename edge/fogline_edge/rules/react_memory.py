"""What the rules that act remember, and what they do with one event after the other. Pure.

The gateway keeps this memory in the outbox's file (`outbox.writer.reactor`); `fogline-edge rules` begins with an empty one.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from fogline.events.event import Arrival
from fogline.gateway.ledger import RuleOutcome
from fogline_edge.rules.react import (
    LastValue,
    ReactRule,
    ReactRules,
    RuleState,
    Seen,
    commanded,
    decide,
    depth_of,
    last_value,
    view_of,
)


class Reaction(NamedTuple):
    """The outcome of one rule for an event, None if it did nothing. `depth`: the number of actions that led to the event."""

    rule: ReactRule
    outcome: RuleOutcome | None
    depth: int


class ReactMemory:
    """States of the rules and last values of devices. `changed_states`, `changed_values`: since the caller cleared them."""

    def __init__(self, rules: ReactRules) -> None:
        self.rules = rules
        self.states: dict[str, RuleState] = {}
        self.values: dict[str, LastValue] = {}
        self._commanding: list[ReactRule] = []
        self.changed_states: set[str] = set()
        self.changed_values: set[str] = set()

    def recall(self, name: str, state: RuleState) -> bool:
        """Take the state of a rule from an earlier run. Returns False if there is no such rule any more."""
        for rule in self.rules.rules:
            if rule.name == name:
                self.states[name] = state
                if state.commanded:
                    self._commanding.append(rule)
                return True
        return False

    def hear(self, arrival: Arrival, now_ms: int, *, stored: bool = True) -> None:
        """Replace the last values of an event's device. `stored`: they are to be kept."""
        for each in self.rules.heard(arrival):
            self.values[each.key] = last_value(arrival, each.tree, now_ms)
            if stored:
                self.changed_values.add(each.key)

    def react(
        self,
        rules: Sequence[ReactRule],
        arrival: Arrival,
        time: dict[str, int],
        now_ms: int,
        *,
        depth: int,
        has_room: Callable[[ReactRule], bool],
    ) -> list[Reaction]:
        """Let the rules of an event decide. `time`: see `Seen`. `depth`: the actions that led to it, as far as is known."""
        if self._commanding:
            depth = max(depth, depth_of(self._commanding, self.states, arrival.device, now_ms))
        seen = Seen(arrival.device, view_of(arrival), self.values, time, now_ms)
        return [Reaction(rule, self._decide(rule, seen, depth, has_room), depth) for rule in rules]

    def note_command(self, rule: ReactRule, device: str, now_ms: int, depth: int) -> None:
        """Note that a rule commands a device now. `depth`: the number of actions, this one included."""
        self._change(rule, commanded(self.states[rule.name], device, now_ms, depth))
        if rule not in self._commanding:
            self._commanding.append(rule)

    def _decide(self, rule: ReactRule, seen: Seen, depth: int, has_room: Callable[[ReactRule], bool]) -> RuleOutcome | None:
        before = self.states.get(rule.name) or rule.start(seen.now_ms)
        outcome, state = decide(rule, before, seen, depth)
        if outcome is RuleOutcome.FIRED and not has_room(rule):
            return RuleOutcome.BUSY
        if state is not before:
            self._change(rule, state)
        return outcome

    def _change(self, rule: ReactRule, state: RuleState) -> None:
        self.states[rule.name] = state
        self.changed_states.add(rule.name)
