"""The rules that apply to an arrival, by its device, channel, type and protocol."""

import re
from collections.abc import Callable, Sequence
from fnmatch import translate
from typing import Generic, TypeVar

from fogline.events.event import Arrival
from fogline_edge.profiles.patterns import compile_pattern
from fogline_edge.rule_settings import RuleTable

MAX_REMEMBERED = 4096
"""Sources of arrivals whose rules are remembered."""

T = TypeVar("T")


class RuleSelection(Generic[T]):
    """Rules of one kind, in the order of the settings: each with its table. Raises `Misconfigured` for a bad channel.

    `kind`: the name of the tables, such as `rules.identity`.
    """

    def __init__(self, kind: str, rules: Sequence[tuple[RuleTable, T]]) -> None:
        self._rules = [(_matcher(kind, table), rule) for table, rule in rules]
        self._known: dict[tuple[str, str, str, str], tuple[T, ...]] = {}

    def of(self, arrival: Arrival) -> tuple[T, ...]:
        """Return the rules that apply to an arrival. The result is remembered: arrivals have few sources."""
        source = arrival.device, arrival.channel, arrival.type, arrival.adapter
        rules = self._known.get(source)
        if rules is None:
            rules = tuple(rule for applies, rule in self._rules if applies(*source))
            if len(self._known) >= MAX_REMEMBERED:
                self._known.clear()
            self._known[source] = rules
        return rules


def _matcher(kind: str, table: RuleTable) -> Callable[[str, str, str, str], bool]:
    device = re.compile(translate(table.device)).fullmatch
    channel = compile_pattern(f"{kind} {table.name}: channel", table.channel, needs_device=False)

    def applies(of_device: str, of_channel: str, of_type: str, of_adapter: str) -> bool:
        return (
            table.type in (None, of_type)
            and table.adapter in (None, of_adapter)
            and device(of_device) is not None
            and channel(of_channel) is not None
        )

    return applies
