"""A trial of the rules: events go through the code of a gateway, over an outbox of their own that is thrown away.

Nothing is sent. The trial begins without memory: no last values, no duplicates, no conditions that hold.
"""

import contextlib
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from fogline.commands.command import Command
from fogline.events.codec import Beacon, decode_event
from fogline.events.event import Arrival, Event, Lane, Receipt, parse_rfc3339
from fogline.gateway.ledger import RuleOutcome, total_by_rule
from fogline_edge.machine.boot import moment
from fogline_edge.outbox.file.queries import SQL
from fogline_edge.outbox.file.schema import open_database
from fogline_edge.outbox.rows.streams import EventRecord
from fogline_edge.outbox.writer.ingest import Waiting
from fogline_edge.outbox.writer.reactor import problems_of
from fogline_edge.outbox.writer.store import OutboxStore
from fogline_edge.rules.actions import ALARM_TYPE
from fogline_edge.settings import EdgeSettings

_START_MS = 1000


class TrialClock:
    """The clocks of a trial: both show the time of the event. Implements `fogline_edge.machine.boot.Clock`."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.right = True
        self._first_ns: int | None = None
        self._boottime_ms = _START_MS

    def set(self, now_ns: int, *, right: bool) -> None:
        """Set the time. The clock since boot never goes back."""
        if self._first_ns is None:
            self._first_ns = now_ns
        self.now_ns, self.right = now_ns, right
        self._boottime_ms = max(self._boottime_ms, _START_MS + (now_ns - self._first_ns) // 1_000_000)

    def time_ns(self) -> int:
        """See `Clock.time_ns`."""
        return self.now_ns

    def beacon(self) -> Beacon:
        """See `Clock.beacon`."""
        return Beacon("trial", self._boottime_ms)

    def is_right(self) -> bool:
        """See `Clock.is_right`."""
        return self.right

    def compare(self, time_ns: int) -> bool:
        """See `Clock.compare`."""
        return self.now_ns == time_ns


class TrialEvent(NamedTuple):
    """An event of a trial. `clock_right`: the gateway's clock was known to be right at `at_ns`."""

    arrival: Arrival
    at_ns: int
    clock_right: bool = True


class RuleTrialResult(NamedTuple):
    """What became of one event. `outcomes`: of the rules that did something, by rule. `actions`: in words.

    `problems`: the rules whose condition has no value for the event, with the reason.
    """

    receipt: Receipt
    outcomes: dict[str, str]
    actions: list[str]
    problems: dict[str, str]


class RuleTrial:
    """Takes one event after the other. Open it with `open_trial`."""

    def __init__(self, store: OutboxStore, clock: TrialClock) -> None:
        self._store = store
        self._clock = clock
        self._seen: dict[str, int] = {}
        self._counted = self._counts()

    def take(self, event: TrialEvent) -> RuleTrialResult:
        """Take an event as the gateway would."""
        store = self._store
        self._clock.set(event.at_ns, right=event.clock_right)
        when = moment(self._clock)
        with store.transaction():
            (receipt,) = store.ingest.store([Waiting(event.arrival, when, lambda _: None)], store.age.ms)
            store.connection.execute("DELETE FROM command")
            store.connection.execute(SQL["drop_rule_messages"])
        store.ingest.committed()
        former, self._counted = self._counted, self._counts()
        outcomes = {
            rule: outcome
            for rule, counts in self._counted.items()
            for outcome, events in counts.items()
            if events > former.get(rule, {}).get(outcome, 0)
        }
        problems = problems_of(store.connection.execute(SQL["kept_by_rules"]))
        doubtful = (RuleOutcome.ERROR, RuleOutcome.CLOCK)
        why = {rule: problems[rule] for rule, outcome in outcomes.items() if outcome in doubtful and rule in problems}
        return RuleTrialResult(receipt, outcomes, [*self._commands(), *self._messages(), *self._alarms()], why)

    def _counts(self) -> dict[str, dict[str, int]]:
        return total_by_rule(each.counts.rules for each in self._store.streams.everything())

    def _commands(self) -> Iterator[str]:
        commands = self._store.commands[:]
        self._store.commands.clear()
        yield from map(_in_words, commands)

    def _messages(self) -> Iterator[str]:
        messages = self._store.messages[:]
        self._store.messages.clear()
        for each in messages:
            yield f"message on {each.note.topic} {each.data.decode('utf-8', 'replace')}"

    def _alarms(self) -> Iterator[str]:
        for stream in self._store.streams.everything():
            after, self._seen[stream.stream] = self._seen.get(stream.stream, 0), stream.head
            if stream.lane is Lane.ALARM:
                records: Iterable[EventRecord] = self._store.events(stream, after, -1)
                for event in (decode_event(each.body) for each in records):
                    if event.type == ALARM_TYPE and event.adapter == "fogline":
                        yield f"alarm {event.data.decode('utf-8', 'replace')}"


@contextlib.contextmanager
def open_trial(settings: EdgeSettings) -> Iterator[RuleTrial]:
    """Open a trial of the rules of these settings. Raises `Misconfigured`."""
    with tempfile.TemporaryDirectory(prefix="fogline-rules-") as folder:
        connection = open_database(Path(folder) / "outbox.db", 1_000_000_000)
        with contextlib.closing(connection):
            connection.execute("PRAGMA synchronous = OFF")  # nothing of a trial has to survive
            clock = TrialClock()
            yield RuleTrial(OutboxStore(connection, settings, may_wait=_never, clock=clock), clock)


def arrival_of(event: Event) -> Arrival:
    """Return a stored event as the arrival that it was, without its identity."""
    return Arrival(
        device=event.device,
        channel=event.subject,
        lane=event.lane,
        content_type=event.content_type,
        data=event.data,
        adapter=event.adapter,
        type=event.type,
        properties=event.properties,
        dataref=event.dataref,
        time_ns=None if event.time is None else parse_rfc3339(event.time),
    )


def _in_words(command: Command) -> str:
    body = command.data.decode("utf-8", "replace")
    return f"command {command.name} to {command.device}{' ' if body else ''}{body}"


def _never(_: sqlite3.Error) -> bool:
    return False
