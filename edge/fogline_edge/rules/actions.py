"""What rules do: commands to devices of this gateway, alarm events, and messages on local topics. Pure.

A command's id and an alarm's identity follow from the rule, the event and the number of the action: what one event leads to
cannot happen twice.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from fogline.commands.command import MAX_COMMAND_BYTES, RULE_PREFIX, Command, Deadline, check_name
from fogline.errors import Misconfigured, Poison
from fogline.events.codec import Beacon
from fogline.events.event import Arrival, Lane
from fogline.events.identity import UniqueId, semantic_id
from fogline_edge.rule_settings import ActionTable, ReactTable
from fogline_edge.rules.cel import EvaluationError
from fogline_edge.rules.explanation import RuleStep
from fogline_edge.rules.message import MessageNote, RuleMessage
from fogline_edge.rules.react import GATEWAY_ADAPTER, ReactRule, ReactRules, view_of

ALARM_TYPE = "alarm"
"""CloudEvents type of the alarms of rules."""
EXAMPLE = 'then = [{ command = "switch", device = "fan-1", json = { on = true } }, { alarm = "the hall is hot" }]'


RESERVED = ("command", "event", "telemetry")
"""First levels of topics that rules may not use: those of devices' events and commands."""


def check_actions(table: ReactTable) -> None:
    """Raise `Misconfigured` for an action that cannot be done."""
    for number, action in enumerate(table.then, 1):
        key = action_key(table, number)
        if [action.command, action.alarm, action.topic].count(None) != 2:
            raise Misconfigured(f"{key}: it has either `command`, `alarm` or `topic`: {EXAMPLE}")
        if action.topic is not None:
            _check_topic(key, action.topic)
        if action.command is not None:
            try:
                check_name(action.command)
            except Poison as error:
                raise Misconfigured(f"{key}: {error}") from None
        elif action.device is not None:
            raise Misconfigured(f"{key}: `device` is for commands: {EXAMPLE}")
        _check_body(key, action)


def _check_body(key: str, action: ActionTable) -> None:
    if action.alarm is not None and action.text is not None:
        raise Misconfigured(f"{key}: `text` is for commands and messages: {EXAMPLE}")
    if action.json is not None and action.text is not None:
        raise Misconfigured(f"{key}: it has `json` or `text`, not both: {EXAMPLE}")
    if action.alarm is not None and action.json is not None and not isinstance(action.json, dict):
        raise Misconfigured(f'{key}: the `json` of an alarm is a table, such as {{ place = "hall" }}')
    if len(_body(action)[0]) > MAX_COMMAND_BYTES:
        raise Misconfigured(f"{key}: a body may have {MAX_COMMAND_BYTES} bytes")


def action_key(table: ReactTable, number: int) -> str:
    """Return the place of an action in the settings, for errors. `number`: from 1."""
    return f"rules.react {table.name}: then, action {number}"


def _check_topic(key: str, topic: str) -> None:
    first = topic.partition("/")[0]
    if set(topic) & {"+", "#", "\0"}:
        raise Misconfigured(f"{key}: topic = {topic!r} has a wildcard: expected a topic name, such as rule/fan")
    if first in RESERVED or first.startswith("$"):
        raise Misconfigured(f"{key}: topic = {topic!r}: topics below {first} are not for rules: use another, such as rule/fan")


class Cause(NamedTuple):
    """A rule, and the event on which it acts."""

    rule: str
    event_id: str
    arrival: Arrival


def command_of(cause: Cause, action: ActionTable, number: int, identity: tuple[str, str], now: Beacon) -> Command:
    """Return the command of an action. `identity`: tenant and gateway. `number`: of the action in its rule, from 1."""
    rule, event_id, arrival = cause
    tenant, gateway = identity
    data, content_type = _body(action)
    key = (event_id.encode(), b"%d" % number)
    return Command(
        id=RULE_PREFIX + semantic_id(1, tenant, arrival.device, f"rule/{rule}", *key),
        tenant=tenant,
        gateway=gateway,
        device=action.device or arrival.device,
        name=action.command or "",
        data=data,
        content_type=content_type,
        reply=action.reply,
        durable=True,
        idempotent=action.idempotent,
        correlation=f"rule/{rule}/{event_id}"[:1024],
        deadline=Deadline(now.boot_id, now.boottime_ms + int(action.ttl_s * 1000)),
    )


def alarm_of(cause: Cause, action: ActionTable, number: int) -> Arrival:
    """Return the alarm event of an action: an event of the same device on lane `alarm`."""
    rule, event_id, arrival = cause
    body: dict[str, Any] = {**(action.json or {}), "alarm": action.alarm, "rule": rule, "event": event_id}
    return Arrival(
        device=arrival.device,
        channel=f"rule/{rule}",
        lane=Lane.ALARM,
        content_type="application/json",
        data=msgspec.json.encode(body),
        adapter=GATEWAY_ADAPTER,
        type=ALARM_TYPE,
        evidence=UniqueId(f"{rule}/{event_id}/{number}".encode()),
    )


def message_of(cause: Cause, action: ActionTable, key: str) -> RuleMessage:
    """Return the message of an action. Without a body of its own it has the payload of the event, as the gateway stores it."""
    rule, event_id, arrival = cause
    with_body = action.json is not None or action.text is not None
    data, content_type = _body(action) if with_body else (arrival.data, arrival.content_type)
    note = MessageNote(rule, event_id, action.topic or "", arrival.lane)
    return RuleMessage(key, note, arrival.device, data, content_type)


def explain_react(rules: ReactRules, arrival: Arrival) -> Iterator[RuleStep]:
    """Yield what each rule does with a new event, as far as the event alone decides it."""
    for rule in rules.of(arrival):
        yield RuleStep("react", rule.name, _sentence(rule, arrival))


def _sentence(rule: ReactRule, arrival: Arrival) -> str:
    condition, actions = rule.condition, ", ".join(_in_words(each, arrival) for each in rule.table.then)
    if {"last", "time"} & condition.reads.keys():
        return f"last values or the time of day decide if the condition {condition.source} holds: then {actions}"
    try:
        holds = condition.holds({"event": view_of(arrival)})
    except EvaluationError as error:
        return f"the condition {condition.source} has no value, and the rule does nothing: {error}"
    if not holds:
        return f"the condition {condition.source} does not hold: the rule does nothing"
    how_often = "on each such event" if rule.table.every else "if it did not hold for the device before"
    return f"the condition {condition.source} holds; {how_often}: {actions}"


def _in_words(action: ActionTable, arrival: Arrival) -> str:
    if action.command is not None:
        return f"command {action.command} to {action.device or arrival.device}"
    return f"message on {action.topic}" if action.topic is not None else f"alarm {action.alarm!r}"


def _body(action: ActionTable) -> tuple[bytes, str | None]:
    if action.text is not None:
        return action.text.encode(), "text/plain"
    if action.json is not None:
        return msgspec.json.encode(action.json), "application/json"
    return b"", None
