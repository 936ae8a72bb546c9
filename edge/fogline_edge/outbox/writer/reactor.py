"""Carries out what rules decide about stored events, within the transaction that stores them.

A command becomes a row of the journal, an alarm a row of its stream, a message a note, and the state of the rules and the last
values of devices are kept, so one commit makes all of it durable, or none.
"""

import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final

import msgspec

from fogline.commands.command import Command, CommandState, digest
from fogline.events.event import Arrival
from fogline.gateway.ledger import RuleOutcome
from fogline.process.crash_points import CrashPoint, crash_point
from fogline_edge.machine.boot import Moment, time_of_day
from fogline_edge.outbox.file.queries import SQL
from fogline_edge.outbox.rows.command_rows import insert_command, is_room
from fogline_edge.outbox.rows.group import Group
from fogline_edge.outbox.rows.message_rows import MESSAGE_KEY, note_message, room_for_messages
from fogline_edge.outbox.writer.ingest import Ingest, Waiting, keep_value
from fogline_edge.rules.actions import Cause, alarm_of, command_of, message_of
from fogline_edge.rules.message import MessageNote, RuleMessage
from fogline_edge.rules.react import LastValue, ReactRule, ReactRules, RuleState
from fogline_edge.rules.react_memory import ReactMemory

STATE_KEY: Final = "rules/react/"
LAST_KEY: Final = "rules/last/"
_pack = msgspec.msgpack.Encoder().encode
_states = msgspec.msgpack.Decoder(RuleState)
_values = msgspec.msgpack.Decoder(LastValue)
_log = logging.getLogger("fogline.rules")


class Reactor:
    """Acts on the events that `ingest` stores. Used on the writer's thread; after a rollback, use a new one.

    `command`, `publish`: get the commands and the messages of a transaction after its commit.
    """

    def __init__(
        self,
        ingest: Ingest,
        rules: ReactRules,
        command: Callable[[list[Command]], None],
        publish: Callable[[list[RuleMessage]], None],
    ) -> None:
        self._ingest = ingest
        self._memory = ReactMemory(rules)
        self._command = command
        self._publish = publish
        self._unknown: list[str] = []
        self._commands: list[Command] = []
        self._messages: list[RuleMessage] = []
        self._depth = 0
        self._time: tuple[Moment | None, dict[str, int]] = None, {}
        for key, value in ingest.connection.execute(SQL["kept_by_rules"]).fetchall():
            self._recall(key, value)

    def _recall(self, key: str, value: bytes) -> None:
        memory, name, last = self._memory, key.removeprefix(STATE_KEY), key.removeprefix(LAST_KEY)
        with contextlib.suppress(msgspec.MsgspecError):  # of another version: the rule begins anew
            if name != key and memory.recall(name, _states.decode(value)):
                return
            if last != key and memory.rules.has_input(last):
                memory.values[last] = _values.decode(value)
                return
        self._unknown.append(key)

    def taken(self, group: Group, arrival: Arrival, event_id: str, when: Moment) -> None:
        """Evaluate the rules on a new event. It was stored just now, or kept back by a rule."""
        memory = self._memory
        memory.hear(arrival, group.age_ms)
        if not (rules := memory.rules.of(arrival)):
            return
        has_room = partial(self._has_room, arrival)
        found = memory.react(rules, arrival, self._time_of_day(when), group.age_ms, depth=self._depth, has_room=has_room)
        for rule, outcome, depth in found:
            if outcome is not None:
                self._ingest.count_rule(arrival.lane, rule.name, outcome)
            if outcome is RuleOutcome.FIRED:
                self._act(group, rule, Cause(rule.name, event_id, arrival), when, depth + 1)

    def heard(self, group: Group, arrival: Arrival) -> None:
        """Note the value of an arrival that repeats the last report, in memory only: it causes no write."""
        self._memory.hear(arrival, group.age_ms, stored=False)

    def write(self) -> None:
        """Within the transaction: write what has changed."""
        memory = self._memory
        for name in memory.changed_states:
            keep_value(self._ingest.connection, STATE_KEY + name, _pack(memory.states[name]))
        for key in memory.changed_values:
            keep_value(self._ingest.connection, LAST_KEY + key, _pack(memory.values[key]))
        for key in self._unknown:
            keep_value(self._ingest.connection, key, None)
        memory.changed_states.clear()
        memory.changed_values.clear()
        self._unknown.clear()

    def committed(self) -> None:
        """Hand over the commands and messages of the committed transaction."""
        if self._commands:
            commands, self._commands = self._commands, []
            self._command(commands)
        if self._messages:
            messages, self._messages = self._messages, []
            self._publish(messages)

    def _time_of_day(self, when: Moment) -> dict[str, int]:
        if when is not self._time[0]:  # many events share their time
            self._time = when, time_of_day(when)
        return self._time[1]

    def _has_room(self, arrival: Arrival, rule: ReactRule) -> bool:
        connection, then = self._ingest.connection, rule.table.then
        messages = sum(each.topic is not None for each in then)
        if messages and room_for_messages(connection) < messages:
            return False
        devices = {each.device or arrival.device for each in then if each.command is not None}
        return all(is_room(connection, each) for each in devices)

    def _act(self, group: Group, rule: ReactRule, cause: Cause, when: Moment, depth: int) -> None:
        for number, action in enumerate(rule.table.then, 1):
            if action.command is not None:
                now = self._ingest.clock.beacon()
                command = command_of(cause, action, number, self._ingest.identity, now)
                if self._ingest.connection.execute(SQL["command_digest"], (command.id,)).fetchone() is not None:
                    continue  # an event with the id of another one, as a rule of identity allows
                insert_command(self._ingest.connection, command, digest(command), CommandState.QUEUED, group.age_s)
                self._memory.note_command(rule, command.device, group.age_ms, depth)
                self._commands.append(command)
                crash_point(CrashPoint.AFTER_RULE_COMMAND_BEFORE_COMMIT)
            elif action.topic is not None:
                key = f"{MESSAGE_KEY}{group.commit_id.hex()}/{len(self._messages):08}"
                self._messages.append(message_of(cause, action, key))
                note_message(self._ingest.connection, self._messages[-1])
            else:
                former, self._depth = self._depth, depth
                self._ingest.take(group, Waiting(alarm_of(cause, action, number), when, _ignore))
                self._depth = former


def report_in_doubt(notes: Mapping[str, MessageNote | None], ingest: Ingest, _: Group) -> None:
    """Within a transaction: count messages of an earlier run, of which nobody knows if they were published, and delete them."""
    for key, note in notes.items():
        keep_value(ingest.connection, key, None)
        if note is not None:
            ingest.count_rule(note.lane, note.rule, RuleOutcome.IN_DOUBT)
            text = "rule %s: the message on %s for event %s is in doubt: the gateway ended while it was published"
            _log.warning(text, note.rule, note.topic, note.event, extra={"reason": "message-in-doubt"})


def problems_of(kept: Iterable[tuple[str, bytes]]) -> dict[str, str]:
    """Return the last problem of each rule that has one, from rows of `kept`."""
    problems = {}
    for key, value in kept:
        with contextlib.suppress(msgspec.MsgspecError):
            if key.startswith(STATE_KEY) and (problem := _states.decode(value).problem):
                problems[key.removeprefix(STATE_KEY)] = problem
    return problems


def _ignore(_: object) -> None:
    return
