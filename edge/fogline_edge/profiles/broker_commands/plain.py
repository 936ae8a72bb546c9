"""Commands to devices of profile `plain`, as the settings declare them. Pure."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fogline.address import device_identifier
from fogline.commands.command import Command
from fogline.errors import Misconfigured, Poison
from fogline.events.device_report import AVAILABILITY, read_availability
from fogline_edge.profiles.broker_commands.directory import Directory
from fogline_edge.profiles.broker_commands.echo import EchoExchange
from fogline_edge.profiles.broker_commands.exchange import CommandExchange, NamedAnswer, Publication
from fogline_edge.profiles.broker_commands.field import FieldRules
from fogline_edge.profiles.broker_commands.last_states import LastStates
from fogline_edge.profiles.broker_commands.values import ANY
from fogline_edge.profiles.plain import Plain
from fogline_edge.profiles.profile import BrokerMessage, Filter

_PLACEHOLDERS = ("{device}", "{command}", "{id}")


class TopicTemplate:
    """A topic whose levels are words and placeholders. Raises `Misconfigured`, naming the setting `key`."""

    def __init__(self, key: str, text: str) -> None:
        levels = text.split("/")
        words = [each for each in levels if each not in _PLACEHOLDERS]
        if levels.count("{device}") != 1 or any(not each or set(each) & set("+#{}\0") for each in words):
            example = "a level is a word, {device} (exactly once), {command} or {id}; for example 'plant/{device}/set'"
            raise Misconfigured(f"{key} = {text!r}: {example}")
        self._levels = levels
        self.filter = "/".join("+" if each in _PLACEHOLDERS else each for each in levels)
        parts = ["([^/]+)" if each == "{device}" else "[^/]+" if each in _PLACEHOLDERS else re.escape(each) for each in levels]
        self._matches = re.compile("/".join(parts)).fullmatch

    def fill(self, name: str, command: Command) -> str:
        """Return the topic of a command to the device with this name."""
        values = {"{device}": name, "{command}": command.name, "{id}": command.id}
        return "/".join(values.get(each, each) for each in self._levels)

    def device_in(self, topic: str) -> str | None:
        """Return the name of the device in a topic; None if the topic is another one."""
        match = self._matches(topic)
        return match[1] if match is not None else None


@dataclass(frozen=True, slots=True)
class PlainCommandRule:
    """One entry of the settings. `read`: the value of an echo; `wanted_in`: the wanted value in an argument; None: any."""

    topic: TopicTemplate
    commands: frozenset[str]
    echo: TopicTemplate | None
    error: TopicTemplate | None
    read: Callable[[bytes], Any]
    wanted_in: Callable[[bytes], Any] | None

    @property
    def templates(self) -> Iterator[TopicTemplate]:
        """All topics of the entry."""
        return (each for each in (self.topic, self.echo, self.error) if each is not None)


class PlainCommands:
    """The commands of `rules`; the first one that has the name applies. `notes`: of the directory, from a former run."""

    def __init__(self, profile: Plain, rules: Sequence[PlainCommandRule], notes: Mapping[str, bytes]) -> None:
        self.directory = Directory(notes)
        self._profile = profile
        self._rules = rules
        self._states = LastStates()

    @property
    def filters(self) -> Iterable[Filter]:
        """The commands themselves, so that the broker delivers them back; echoes and errors."""
        return [Filter(each) for each in dict.fromkeys(each.filter for rule in self._rules for each in rule.templates)]

    def note(self, message: BrokerMessage) -> None:
        """See `BrokerCommandProfile.note`."""
        name, kind = self._place(message.topic)
        if name is None:
            return
        try:
            device = device_identifier(name, "device")
        except Poison:
            return
        online = read_availability(message.payload) if kind == AVAILABILITY else None
        if online is not None:
            self.directory.set_online(device, name, online=online)
        if online or not message.retained:
            self.directory.hear(device, name)
        if any(each.echo is not None and each.echo.device_in(message.topic) is not None for each in self._rules):
            self._states.note(message.topic, message.payload)

    def answer(self, message: BrokerMessage) -> NamedAnswer | None:  # noqa: ARG002 - the interface
        """See `BrokerCommandProfile.answer`."""
        return None

    def begin(self, command: Command) -> CommandExchange:
        """See `BrokerCommandProfile.begin`."""
        name = self.directory.name_of(command.device)
        if name is None or set(name) & set("+#/\0"):
            raise Poison("bad-device", f"no topic of the settings has the name of {command.device}")
        rule = next((each for each in self._rules if not each.commands or command.name in each.commands), None)
        if rule is None:
            names = ", ".join(sorted(name for each in self._rules for name in each.commands))
            raise Poison("no-command", f"the settings have no command {command.name}; they have {names}")
        wanted = ANY if rule.wanted_in is None else rule.wanted_in(command.data)
        if wanted is None:
            raise Poison("bad-argument", "the argument does not have the value of echo_argument")
        echo = rule.echo.fill(name, command) if rule.echo is not None else None
        last = self._states.get(echo) if echo is not None else b""
        error = rule.error.fill(name, command) if rule.error is not None else None
        rules = FieldRules(echo, wanted, rule.read, acknowledges=rule.wanted_in is None, last=last, error=error)
        return EchoExchange(Publication(rule.topic.fill(name, command), command.data), rules)

    def _place(self, topic: str) -> tuple[str | None, str]:
        """Return the device that a topic names, and the type of its event; "" if the topic is only of commands."""
        place = self._profile.parse(topic)
        if place is not None:
            return place
        heard = (each for rule in self._rules for each in (rule.echo, rule.error) if each is not None)
        return next((name for each in heard if (name := each.device_in(topic)) is not None), None), ""
