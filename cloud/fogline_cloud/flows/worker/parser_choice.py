"""The choice of a parser for an event: the rules of the settings in their order, then its content type. Pure."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import translate
from types import MappingProxyType
from urllib.parse import parse_qsl

from fogline.errors import Misconfigured
from fogline.events.event import Event
from fogline.short_cache import cache_short
from fogline_cloud.flows.parsers import essence, parser_name
from fogline_cloud.settings import ParserRuleSettings

Choose = Callable[[Event], str | None]
"""Returns the name of the parser for an event, `None` if there is none."""

_ATTRIBUTES = ("content_type", "subject", "device", "type", "adapter")


def chooser(
    by_content_type: Mapping[str, str],
    rules: Sequence[ParserRuleSettings] = (),
    deployed: Mapping[str, str] = MappingProxyType({}),
) -> Choose:
    """Return the choice by checked settings (`checked_overrides`, `checked_rules`), and then by deployments."""
    if not rules:
        return lambda event: parser_name(event.content_type, by_content_type, deployed)
    compiled = [(_matcher(rule), rule.parser) for rule in rules]
    with_properties = any(rule.properties for rule in rules)

    @cache_short(maxsize=16_384)
    def choose(properties: str, content_type: str, *others: str) -> str | None:
        given, extra = (essence(content_type), *others), dict(parse_qsl(properties))
        by_rule = (parser for matches, parser in compiled if matches(given, extra))
        return next(by_rule, None) or parser_name(content_type, by_content_type, deployed)

    def of_event(event: Event) -> str | None:
        properties = event.properties or "" if with_properties else ""
        return choose(properties, event.content_type, event.subject, event.device, event.type, event.adapter)

    return of_event


def _matcher(rule: ParserRuleSettings) -> Callable[[Sequence[str], Mapping[str, str]], bool]:
    patterns = {name: getattr(rule, name) for name in _ATTRIBUTES}
    patterns["content_type"] = patterns["content_type"].lower()
    limiting = [(index, _pattern(patterns[name])) for index, name in enumerate(_ATTRIBUTES) if patterns[name] != "*"]
    properties = [(name, _pattern(pattern)) for name, pattern in rule.properties.items()]

    def matches(given: Sequence[str], extra: Mapping[str, str]) -> bool:
        return all(pattern.match(given[index]) for index, pattern in limiting) and all(
            name in extra and pattern.match(extra[name]) for name, pattern in properties
        )

    return matches


def _pattern(pattern: str) -> re.Pattern[str]:
    return re.compile(translate(pattern))


def checked_rules(rules: Iterable[ParserRuleSettings], installed: Iterable[str]) -> tuple[ParserRuleSettings, ...]:
    """Return the rules. Raises `Misconfigured` with the number of an entry that names no parser, or fits every event."""
    known = set(installed)
    checked = tuple(rules)
    for number, rule in enumerate(checked, 1):
        where = f'[[flow.parser_rules]] entry {number} (parser = "{rule.parser}")'
        if rule.parser not in known:
            raise Misconfigured(f"{where}: no such parser is installed (installed: {', '.join(sorted(known)) or 'none'})")
        if not rule.properties and all(getattr(rule, name) == "*" for name in _ATTRIBUTES):
            raise Misconfigured(f"{where} fits every event: give it at least one of {', '.join(_ATTRIBUTES)} and properties")
    return checked
