"""Applies the rules that reduce to arrivals: keeps them back, counts them, and appends the events of closed windows.

Used on the writer's thread, within a transaction; after a rollback, use a new one.
"""

import base64
import math

import msgspec

from fogline.documents.json_payload import is_bare_json, is_json_type
from fogline.events.event import Arrival, Lane, rfc3339
from fogline.gateway.ledger import KEPT_BACK, RuleOutcome
from fogline_edge.history.history_file import HistoryFile, KeptEvent
from fogline_edge.machine.boot import Moment
from fogline_edge.outbox.memory.duplicate_filter import DuplicateFilter
from fogline_edge.outbox.memory.recognition import NewEvent
from fogline_edge.outbox.reduction.window_table import Append, WindowTable
from fogline_edge.outbox.rows.group import Group
from fogline_edge.outbox.rows.streams import Streams
from fogline_edge.rules.event_rules import EventRules
from fogline_edge.rules.reduction import Reduction
from fogline_edge.rules.windows import WindowRule


class Reducer:
    """`reduction`: the rules; None if the file only has windows of former rules. `history`: takes the events that are kept."""

    def __init__(
        self, reduction: Reduction | None, windows: WindowTable, streams: Streams, duplicates: DuplicateFilter
    ) -> None:
        self.windows = windows
        self._reduction = reduction
        self._streams = streams
        self._duplicates = duplicates
        self._kept: list[KeptEvent] = []
        self.history: HistoryFile | None = None

    def applies(self, arrival: Arrival) -> bool:
        """Return True if some rule applies to an arrival."""
        return self._reduction is not None and self._reduction.applies(arrival)

    def keeps_back(self, group: Group, arrival: Arrival, when: Moment, verdict: NewEvent) -> bool:
        """Return True if a rule keeps a new arrival back, which is then counted and remembered as if it were stored.

        `applies` must be true.
        """
        assert self._reduction is not None
        if (decision := self._reduction.decide(arrival, group.age_ms)) is None:
            return False
        stream = self._streams.of_lane(arrival.lane)
        outcome = decision.outcome
        if isinstance(decision.rule, WindowRule) and outcome is RuleOutcome.MERGED:
            outcome = self.windows.merge(group, decision.rule, arrival, decision.values, when)
        self._streams.count_rule(stream, decision.rule.name, outcome)
        if outcome not in KEPT_BACK:
            return False
        if (sent := arrival.retransmission) is not None:
            resends = self._duplicates.resends
            resends.note(arrival, sent, group.age_s, f"rule:{decision.rule.name}")
            resends.due = True  # no row of an event carries the note
        group.memory.update((key, (arrival.device, entry)) for key, entry in verdict.remember)
        group.touched[stream.stream] = stream
        if decision.rule.keep_s:
            self._kept.append(_kept_event(arrival, when, decision.rule.name, group.age_s + decision.rule.keep_s))
        return True

    def committed(self, age_s: int) -> None:
        """Write the events that are kept for people to look at. Call it after the commit."""
        if self._kept and self.history is not None:
            self.history.add(self._kept, age_s)
        self._kept.clear()

    def close_due(self, group: Group, when: Moment, append: Append) -> int:
        """Append the events of some windows that are due. Returns their number."""
        closed = self.windows.close_due(group, when, append)
        for state in closed:
            self._streams.count_rule(self._streams.of_lane(Lane(state.lane)), state.rule, RuleOutcome.AGGREGATE)
        return len(closed)


def _kept_event(arrival: Arrival, when: Moment, rule: str, until_s: int) -> KeptEvent:
    at_ns = when.time_ns if arrival.time_ns is None else arrival.time_ns
    head = {
        "time": rfc3339(at_ns),
        "device": arrival.device,
        "channel": arrival.channel,
        "type": arrival.type,
        "rule": rule,
        "datacontenttype": arrival.content_type,
    }
    if is_json_type(arrival.content_type) and is_bare_json(arrival.data):
        head["data"] = msgspec.Raw(arrival.data)  # type: ignore[assignment]
    else:
        head["data_base64"] = base64.b64encode(arrival.data).decode()
    return KeptEvent(arrival.device, at_ns // 1_000_000, until_s, msgspec.json.encode(head))


def reducer_of(rules: EventRules | None, windows: WindowTable, streams: Streams, duplicates: DuplicateFilter) -> Reducer | None:
    """Return what reduces events; None without such rules, if the file has no windows of former ones either."""
    reduction = rules.reduction if rules is not None else None
    if reduction is None and windows.due_ms == math.inf:
        return None
    return Reducer(reduction, windows, streams, duplicates)
