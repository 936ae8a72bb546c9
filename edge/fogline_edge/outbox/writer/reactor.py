"""Carries out what rules decide about stored events, within the transaction that stores them.

A command becomes a row of the journal, an alarm a row of its stream, and the state of the rules and the last values of devices
are kept, so one commit makes all of it durable, or none.
"""

import contextlib
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from fogline.commands.command import Command, CommandState, digest
from fogline.events.event import Arrival
from fogline.gateway.ledger import RuleOutcome
from fogline.process.crash_points import CrashPoint, crash_point
from fogline_edge.machine.boot import Moment
from fogline_edge.outbox.file.queries import SQL
from fogline_edge.outbox.rows.command_rows import insert_command, is_room
from fogline_edge.outbox.rows.group import Group
from fogline_edge.outbox.writer.ingest import Ingest, Waiting
from fogline_edge.rules.actions import Cause, alarm_of, command_of
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

STATE_KEY: Final = "rules/react/"
LAST_KEY: Final = "rules/last/"
_pack = msgspec.msgpack.Encoder().encode
_states = msgspec.msgpack.Decoder(RuleState)
_values = msgspec.msgpack.Decoder(LastValue)


class Reactor:
    """Acts on the events that `ingest` stores. Used on the writer's thread; after a rollback, use a new one.

    `ready`: gets the commands of a transaction after its commit.
    """

    def __init__(self, ingest: Ingest, rules: ReactRules, ready: Callable[[list[Command]], None]) -> None:
        self._ingest = ingest
        self._rules = rules
        self._ready = ready
        self._states: dict[str, RuleState] = {}
        self._last: dict[str, LastValue] = {}
        self._changed: set[str] = set()
        self._commands: list[Command] = []
        self._depth = 0
        self._load()

    def _load(self) -> None:
        names = {each.name for each in self._rules.rules}
        for key, value in self._ingest.connection.execute(SQL["kept_by_rules"]).fetchall():
            try:
                if key.startswith(LAST_KEY) and self._rules.input_of(key.removeprefix(LAST_KEY)):
                    self._last[key.removeprefix(LAST_KEY)] = _values.decode(value)
                    continue
                if key.startswith(STATE_KEY) and key.removeprefix(STATE_KEY) in names:
                    self._states[key.removeprefix(STATE_KEY)] = _states.decode(value)
                    continue
            except msgspec.MsgspecError:  # of another version: the rule starts anew
                pass
            self._changed.add(key)

    def stored(self, group: Group, arrival: Arrival, event_id: str, when: Moment) -> None:
        """Evaluate the rules on an event that was stored just now."""
        for each in self._rules.heard(arrival):
            self._last[each.key] = last_value(arrival, each.tree, group.age_ms)
            self._changed.add(LAST_KEY + each.key)
        rules = self._rules.of(arrival)
        if not rules:
            return
        now_ms = group.age_ms
        depth = max(self._depth, depth_of(self._rules.rules, self._states, arrival.device, now_ms))
        seen = Seen(arrival.device, view_of(arrival), self._last, _time_of_day(when), now_ms)
        for rule in rules:
            before = self._states.get(rule.name) or rule.start(now_ms)
            decision = decide(rule, before, seen, depth)
            if decision.outcome is RuleOutcome.FIRED and not self._has_room(rule, arrival):
                decision = decision._replace(outcome=RuleOutcome.BUSY, state=before)
            if decision.outcome is not None:
                self._ingest.count_rule(arrival.lane, rule.name, decision.outcome)
            if decision.state is not before:
                self._keep_state(rule, decision.state)
            if decision.outcome is RuleOutcome.FIRED:
                self._act(group, rule, Cause(rule.name, event_id, arrival), when, depth + 1)

    def heard(self, group: Group, arrival: Arrival) -> None:
        """Note the value of an event that is not stored, in memory only: it causes no write."""
        for each in self._rules.heard(arrival):
            self._last[each.key] = last_value(arrival, each.tree, group.age_ms)

    def write(self) -> None:
        """Within the transaction: write what has changed."""
        for key in self._changed:
            self._ingest.keep(key, self._value(key))
        self._changed.clear()

    def committed(self) -> None:
        """Hand over the commands of the committed transaction."""
        if self._commands:
            commands, self._commands = self._commands, []
            self._ready(commands)

    def _value(self, key: str) -> bytes | None:
        found: Any = self._states.get(key.removeprefix(STATE_KEY)) or self._last.get(key.removeprefix(LAST_KEY))
        return None if found is None else _pack(found)

    def _keep_state(self, rule: ReactRule, state: RuleState) -> None:
        self._states[rule.name] = state
        self._changed.add(STATE_KEY + rule.name)

    def _has_room(self, rule: ReactRule, arrival: Arrival) -> bool:
        devices = {each.device or arrival.device for each in rule.table.then if each.command is not None}
        return all(is_room(self._ingest.connection, each) for each in devices)

    def _act(self, group: Group, rule: ReactRule, cause: Cause, when: Moment, depth: int) -> None:
        for number, action in enumerate(rule.table.then, 1):
            if action.command is not None:
                now = self._ingest.clock.beacon()
                command = command_of(cause, action, number, self._ingest.identity, now)
                insert_command(self._ingest.connection, command, digest(command), CommandState.QUEUED, group.age_s)
                self._keep_state(rule, commanded(self._states[rule.name], command.device, group.age_ms, depth))
                self._commands.append(command)
                crash_point(CrashPoint.AFTER_RULE_COMMAND_BEFORE_COMMIT)
            else:
                former, self._depth = self._depth, depth
                self._ingest.take(group, Waiting(alarm_of(cause, action, number), when, _ignore))
                self._depth = former


def problems_of(kept: Iterable[tuple[str, bytes]]) -> dict[str, str]:
    """Return the last problem of each rule that has one, from rows of `kept`."""
    problems = {}
    for key, value in kept:
        with contextlib.suppress(msgspec.MsgspecError):
            if key.startswith(STATE_KEY) and (problem := _states.decode(value).problem):
                problems[key.removeprefix(STATE_KEY)] = problem
    return problems


def _time_of_day(when: Moment) -> dict[str, int]:
    """Return the local time of day; nothing if the clock is not known to be right."""
    if not when.synced:
        return {}
    local = time.localtime(when.time_ns // 1_000_000_000)
    return {"hour": local.tm_hour, "minute": local.tm_min, "weekday": local.tm_wday + 1}


def _ignore(_: object) -> None:
    return
