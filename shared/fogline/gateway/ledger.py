"""The counts of a stream, which the gateway writes in the transaction of the counted events, and sends as events.

A *statement* is a gateway's event with the counts of its stream before it. One with sequence n has `stored == n - 1`.
"""

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from fogline.documents.json_document import read_document

STATEMENT_CONTENT_TYPE = "application/vnd.fogline-ledger+json"


class RuleOutcome(StrEnum):
    """What a rule of the gateway's settings did with an event."""

    PROTECTED = "protected"
    """Private fields were dropped, rounded or hashed before the event was stored."""
    WITHHELD = "withheld"
    """The body was withheld, because the private fields could not be found in it."""
    IDENTIFIED = "identified"
    """The event has an id from the fields that the rule names."""
    UNIDENTIFIED = "unidentified"
    """The event lacks a field of the rule, and was stored without an identity."""
    DUPLICATE = "duplicate"
    """The event was recognised by its identity, and was not stored again."""
    MARKED = "marked"
    """The event was recognised by its identity, and was stored again with the id of the first one."""
    CONFLICT = "conflict"
    """The event has the key of another event and another content: both are stored."""
    FIRED = "fired"
    """The rule acted."""
    ECHO = "echo"
    """The event came shortly after the rule's own command to the device: the rule was not evaluated."""
    CHAIN = "chain"
    """Actions that followed from one another led to the event: the rule did not act."""
    RATE = "rate"
    """The rule acted too often: it did not act."""
    BUSY = "busy"
    """Too many commands were open, or messages unpublished: the rule did not act."""
    IN_DOUBT = "in_doubt"
    """The gateway was killed between the commit of a message and the end of its publication: it is not published again."""
    CLOCK = "clock"
    """The rule needs the time of day, and the clock was not known to be right."""
    ERROR = "error"
    """The condition had no value: a field was absent, or had another type."""
    REDUCED = "reduced"
    """The event says nothing new by the rule, and was not stored."""
    MERGED = "merged"
    """The event is in an aggregate, and was not stored itself."""
    AGGREGATE = "aggregate"
    """An aggregate was stored as an event. Nothing was acknowledged for it."""
    UNREADABLE = "unreadable"
    """The event has none of the fields of the rule, and was stored as it came."""
    LATE = "late"
    """The device's time is outside all windows that are still open for it, and the event was stored as it came."""
    CROWDED = "crowded"
    """No more windows can be opened, and the event was stored as it came."""


KEPT_BACK = (RuleOutcome.REDUCED, RuleOutcome.MERGED)
"""Outcomes of events that were acknowledged and not stored."""
MADE = (RuleOutcome.AGGREGATE,)
"""Outcomes of events that a rule made, and that nobody sent."""


RuleCounts = dict[str, dict[str, int]]
"""Numbers of events, by the rule's name and its `RuleOutcome`."""


class Counts(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Counts of one stream since it was opened; `fogline.process.monitoring.metrics` has their meanings."""

    acknowledged: int = 0  # with retransmissions
    stored: int = 0  # with statements and gap records
    duplicate: int = 0
    dead: int = 0
    sent: int = 0
    settled: int = 0
    quarantined: int = 0
    filtered: int = 0  # counted in memory: the gateway's death may lose those since the last event
    dropped: int = 0  # an upper limit: gap records name those that did not land
    rules: RuleCounts = msgspec.field(default_factory=dict)

    @property
    def landing(self) -> int:
        """The events that must land, statements and gap records apart: each new one that no rule kept back, and those made."""
        by_rule = sum(
            (outcome in MADE) * events - (outcome in KEPT_BACK) * events
            for outcomes in self.rules.values()
            for outcome, events in outcomes.items()
        )
        return self.acknowledged - self.duplicate + by_rule


class Statement(msgspec.Struct, frozen=True, omit_defaults=True):
    """The counts of one stream at one moment. `closed`: the last statement of the stream.

    `heads`: the highest stored sequence of each stream of the outbox that is open, or not accepted whole. When all of them have
    arrived, everything has arrived that the gateway stored before the statement.
    """

    stream: str
    lane: str
    counts: Counts
    closed: bool = False
    heads: dict[str, int] = msgspec.field(default_factory=dict)


def count_rule(counts: RuleCounts, rule: str, outcome: str, events: int = 1) -> None:
    """Count events with which a rule did something."""
    outcomes = counts.setdefault(rule, {})
    outcomes[str(outcome)] = outcomes.get(outcome, 0) + events


def total_by_rule(streams: Iterable[RuleCounts]) -> RuleCounts:
    """Return the sums of some streams, in the order of the rules' names."""
    total: RuleCounts = {}
    for stream in streams:
        for rule, outcomes in stream.items():
            for outcome, events in outcomes.items():
                count_rule(total, rule, outcome, events)
    return dict(sorted(total.items()))


def encode_statement(statement: Statement) -> bytes:
    """Return the JSON body of a statement's event."""
    return msgspec.json.encode(statement)


def decode_statement(body: bytes) -> Statement:
    """Return the statement of an event's body. Raises `Poison('malformed')`."""
    return read_document(body, Statement, "a ledger statement")
