"""All rules of the settings, in the order of their steps."""

from collections.abc import Iterator, Sequence

from fogline.dead_letter import DEAD_TYPE
from fogline.events.event import Arrival, Lane
from fogline.events.large_body import MAX_INLINE_BYTES
from fogline_edge.rule_settings import ReactTable, RuleSettings
from fogline_edge.rules.actions import check_actions, explain_react
from fogline_edge.rules.explanation import RuleStep
from fogline_edge.rules.identity import IdentityRules
from fogline_edge.rules.payload import Payload
from fogline_edge.rules.private import Count, PrivateRules
from fogline_edge.rules.react import ReactRules
from fogline_edge.rules.reduction import Reduction


class EventRules:
    """The rules of one gateway. Used on the writer's thread. Only those of private fields apply to replies and dead letters.

    `reduction`: those that keep events back, if there are any. `react`: those that act on stored events, if there are any.
    """

    def __init__(self, settings: RuleSettings) -> None:
        self._private = PrivateRules(settings.private) if settings.private else None
        self._identity = IdentityRules(settings.identity) if settings.identity else None
        self.reduction = Reduction(settings.reduce) if settings.reduce else None
        self.react = react_rules_of(settings.react)

    def prepare(self, arrival: Arrival, count: Count) -> Arrival:
        """Return the arrival as it is recognised and stored. `count`: counts what a rule did with an event of a lane."""
        if self._private is not None:
            arrival = self._private.protect(arrival, count)
        if self._identity is None or not _is_event(arrival):
            return arrival
        return self._identity.identify(arrival, Payload(arrival.content_type, arrival.data))

    def explain(self, arrival: Arrival) -> Iterator[RuleStep]:
        """Yield what the rules do with an arrival, step by step. They read no large body."""
        if is_large(arrival):
            why = "the gateway refuses a large body with private fields (HTTP 413, MQTT 0x83, CoAP 4.13): no rule reads it"
            yield from (RuleStep("private", name, why) for name in (self._private.names(arrival) if self._private else ()))
            return
        if self._private is not None:
            yield from self._private.explain(arrival)
            arrival = self._private.protect(arrival, lambda *_: None)
        if self._identity is not None and _is_event(arrival):
            yield from self._identity.explain(arrival, Payload(arrival.content_type, arrival.data))
        if self.reduction is not None:
            yield from self.reduction.explain(arrival)
        if self.react is not None:
            yield from explain_react(self.react, arrival)

    def committed(self) -> None:
        """Keep what was remembered in the transaction. Call it after the commit."""
        if self.reduction is not None:
            self.reduction.committed()

    def rolled_back(self) -> None:
        """Forget what was remembered in the transaction. Call it after the rollback."""
        if self.reduction is not None:
            self.reduction.rolled_back()


def is_large(arrival: Arrival) -> bool:
    """Return True for a large body, or a part of one, which no rule reads."""
    return arrival.dataref is not None or len(arrival.data) > MAX_INLINE_BYTES


def _is_event(arrival: Arrival) -> bool:
    return arrival.lane is not Lane.REPLY and arrival.type != DEAD_TYPE


def react_rules_of(tables: Sequence[ReactTable]) -> ReactRules | None:
    """Return the rules that act; None if there are none. Raises `Misconfigured`."""
    for each in tables:
        check_actions(each)
    return ReactRules(tables) if tables else None


def rules_of(settings: RuleSettings) -> EventRules | None:
    """Return the rules of the settings; None if there are none. Raises `Misconfigured`."""
    return EventRules(settings) if settings.all else None
