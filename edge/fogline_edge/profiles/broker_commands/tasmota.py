"""Commands to devices with Tasmota. Pure.

A command is Tasmota's own (`Power`, `Dimmer`, `Backlog`), published to `cmnd/{topic}/{command}`. The device answers each one on
`stat/{topic}/RESULT`, or on `stat/{topic}/{COMMAND}` with `SetOption4`, by a JSON object that names the command.

| answer to `Power` `ON` | verdict |
|---|---|
| `{"POWER":"ON"}` or `{"POWER1":"ON"}` | succeeded |
| `{"POWER":"OFF"}` | none: it comes from someone else |
| `{"Command":"Unknown"}`, `{"Command":"Error"}` | failed, 422 |

The value must be that of the command if it is a number, or on or off. Any other answer that names the command is taken, because
devices write texts in many forms. `Backlog` is only confirmed as queued: succeeded with status 202 if no command of it is
unknown within the time.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from fogline.address import device_identifier
from fogline.commands.command import Command, Reply
from fogline.documents.media_type import JSON
from fogline.errors import Poison
from fogline.events.device_report import read_availability
from fogline_edge.profiles.broker_commands.directory import Directory
from fogline_edge.profiles.broker_commands.echo import EchoExchange, Evidence, Report
from fogline_edge.profiles.broker_commands.exchange import CommandExchange, NamedAnswer, Publication, Verdict
from fogline_edge.profiles.broker_commands.values import argument_text
from fogline_edge.profiles.profile import BrokerMessage, Filter
from fogline_edge.profiles.tasmota import LAST_WILL, Tasmota

_RESULT = "RESULT"
_BACKLOG = "backlog"
_SWITCHED = {"on": "ON", "true": "ON", "1": "ON", "off": "OFF", "false": "OFF", "0": "OFF"}
_FIRST = re.compile(r"(?<=[^0-9])1$")  # `Power` and `Power1` are the same command
_NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?")


class TasmotaCommands:
    """The commands of devices with the full topic of `profile`. `notes`: of the directory, from a former run."""

    def __init__(self, profile: Tasmota, notes: Mapping[str, bytes]) -> None:
        self.directory = Directory(notes)
        self._profile = profile

    @property
    def filters(self) -> Iterable[Filter]:
        """The commands themselves, so that the broker delivers them back."""
        return (Filter(self._profile.filter_of("cmnd")),)

    def note(self, message: BrokerMessage) -> None:
        """See `BrokerCommandProfile.note`."""
        place = self._profile.parse(message.topic)
        if place is None or place.prefix == "cmnd" or not message.payload:
            return
        try:
            device = device_identifier(place.name, "topic")
        except Poison:
            return
        online = read_availability(message.payload) if (place.prefix, place.word) == ("tele", LAST_WILL) else None
        if online is not None:
            self.directory.set_online(device, place.name, online=online)
        if online or not message.retained:
            self.directory.hear(device, place.name)

    def answer(self, message: BrokerMessage) -> NamedAnswer | None:  # noqa: ARG002 - the interface
        """See `BrokerCommandProfile.answer`."""
        return None

    def begin(self, command: Command) -> CommandExchange:
        """See `BrokerCommandProfile.begin`."""
        name = self.directory.name_of(command.device)
        if name is None or set(name) & set("+#\0"):
            raise Poison("bad-device", f"no device with Tasmota has the topic of {command.device}")
        text = argument_text(command)
        publication = Publication(self._profile.topic_of("cmnd", name, command.name), text.encode())
        return EchoExchange(publication, _ResultRules(self._profile, name, command.name, text))


class _ResultRules:
    """The `EchoRules` of one command: its results."""

    def __init__(self, profile: Tasmota, name: str, command: str, text: str) -> None:
        self._command = _key(command)
        self._topics = {profile.topic_of("stat", name, word) for word in (_RESULT, command.upper())}
        self._status = profile.topic_of("stat", name, "STATUS") if self._command.startswith("status") else None
        self._wanted = _wanted(text)

    def before(self, message: BrokerMessage) -> None:
        """See `EchoRules.before`. Results that are older than the command are of no use."""

    def error(self, message: BrokerMessage) -> Verdict | None:
        """See `EchoRules.error`."""
        result = message.json_object if message.topic in self._topics else None
        if result is None or result.get("Command") not in ("Unknown", "Error"):
            return None
        named = result.get("Input")
        ours = named is None or _key(str(named)) == self._command or self._command == _BACKLOG
        return Reply(422, message.payload, JSON) if ours else None

    def report(self, message: BrokerMessage) -> Report | None:
        """See `EchoRules.report`."""
        if self._status is not None and message.topic.startswith(self._status):
            return Report(Evidence.PROOF, message.payload, JSON)
        result = message.json_object if message.topic in self._topics else None
        key = next((each for each in result or {} if _key(each) == self._command), None)
        if result is None or key is None:
            return None
        return Report(self._evidence(result[key]), message.payload, JSON)

    def _evidence(self, shown: Any) -> Evidence:
        if self._command == _BACKLOG:
            return Evidence.AGREES
        known = isinstance(shown, str | int | float) and self._wanted is not None
        return Evidence.DENIES if known and _wanted(str(shown)) not in (None, self._wanted) else Evidence.PROOF


def _key(command: str) -> str:
    return _FIRST.sub("", command.casefold())


def _wanted(text: str) -> str | float | None:
    """Return a value that a device shows as it was set: on or off, or a number. None for any other."""
    switched = _SWITCHED.get(text.casefold())
    if switched is not None:
        return switched
    return float(text) if _NUMBER.fullmatch(text) else None
