"""Commands to Shelly devices. Pure.

| generation | command | published to | decided by |
|---|---|---|---|
| 2 and later | an RPC method such as `Switch.Set` with parameters | `{prefix}/rpc` | the response with the command's id |
| 1 | `relay.0`, `roller.0`, `light.0`, ... with a text such as `on` | `{id}/relay/0/command` | the state on `{id}/relay/0` |

The verdict of generation 2 is exact: the response names the command. A device of generation 1 repeats its state at times, so a
state that it had before decides only at the end of the time.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from fogline.address import device_identifier
from fogline.commands.command import Command, Reply
from fogline.documents.json_document import read_document
from fogline.documents.media_type import JSON
from fogline.errors import Poison
from fogline.events.device_report import read_availability
from fogline_edge.profiles.broker_commands.answer import AnswerExchange
from fogline_edge.profiles.broker_commands.directory import Directory
from fogline_edge.profiles.broker_commands.echo import EchoExchange
from fogline_edge.profiles.broker_commands.exchange import PROVEN, CommandExchange, NamedAnswer, Publication
from fogline_edge.profiles.broker_commands.field import FieldRules
from fogline_edge.profiles.broker_commands.last_states import LastStates
from fogline_edge.profiles.broker_commands.values import argument_text, expected
from fogline_edge.profiles.profile import BrokerMessage, Filter
from fogline_edge.profiles.shelly import ONLINE, Shelly

_COMPONENT = re.compile(r"(?:relay|roller|light|color|white)\.\d")
_INVALID_ARGUMENT = -103
_ERRORS = range(400, 600)


class _Error(msgspec.Struct):
    code: int
    message: str = ""


class _Response(msgspec.Struct):
    id: str | int | float
    result: Any = None
    error: _Error | None = None


class ShellyCommands:
    """The commands of Shelly devices. `source`: first part of the topic of answers. `notes`: of the directory, as kept."""

    def __init__(self, profile: Shelly, source: str, notes: Mapping[str, bytes]) -> None:
        self.directory = Directory(notes)
        self._profile = profile
        self._source = source
        self._states = LastStates()

    @property
    def filters(self) -> Iterable[Filter]:
        """The answers to RPC. Commands of generation 1 are below `shellies/`, as its states."""
        return (Filter(f"{self._source}/+/rpc"),)

    def note(self, message: BrokerMessage) -> None:
        """See `BrokerCommandProfile.note`."""
        place = self._profile.parse(message.topic)
        if place is None or not place.rest or place.rest == "rpc":
            return
        try:
            device = device_identifier(place.name, "topic prefix")
        except Poison:
            return
        name = f"{place.generation}/{place.name}"
        online = read_availability(message.payload) if place.rest == ONLINE else None
        if online is not None:
            self.directory.set_online(device, name, online=online)
        if online or not message.retained:
            self.directory.hear(device, name)
        if place.generation == 1:
            self._states.note(message.topic, message.payload)

    def begin(self, command: Command) -> CommandExchange:
        """See `BrokerCommandProfile.begin`."""
        generation, _, name = (self.directory.name_of(command.device) or "").partition("/")
        if not name or set(name) & set("+#\0"):
            raise Poison("bad-device", f"no Shelly has the topic of {command.device}")
        return self._of_first(command, name) if generation == "1" else self._call(command, name)

    def answer(self, message: BrokerMessage) -> NamedAnswer | None:
        """See `BrokerCommandProfile.answer`."""
        device = self._profile.answering_device(message.topic)
        if device is None:
            return None
        try:
            found = read_document(message.payload, _Response, "a response")
        except Poison:
            return None
        return NamedAnswer(device, str(found.id), _reply_of(found))

    def _call(self, command: Command, name: str) -> CommandExchange:
        # The answer to a one-way command goes where nobody has subscribed.
        source = f"{self._source}/{command.device}" if command.reply else self._source
        request: dict[str, Any] = {"id": command.id, "src": source, "method": command.name}
        if command.data:
            try:
                request["params"] = read_document(command.data, dict[str, Any], "the argument")
            except Poison as error:
                raise Poison("bad-argument", f'{error}; expected parameters such as {{"id": 0, "on": true}}') from None

        def answer(message: BrokerMessage) -> Reply | None:
            found = self.answer(message)
            return (
                found.reply if found is not None and (found.device, found.command_id) == (command.device, command.id) else None
            )

        publication = Publication(self._profile.topic_of(name, 2, "rpc"), msgspec.json.encode(request))
        return AnswerExchange(publication, answer)

    def _of_first(self, command: Command, name: str) -> CommandExchange:
        if not _COMPONENT.fullmatch(command.name):
            raise Poison("no-command", f"a Shelly of generation 1 has no command {command.name}; for example relay.0")
        topic = self._profile.topic_of(name, 1, command.name.replace(".", "/"))
        text = argument_text(command)
        last = self._states.get(topic)
        rules = FieldRules(topic, expected(text, _text(last)), _text, last=last)
        return EchoExchange(Publication(f"{topic}/command", text.encode()), rules)


def _reply_of(response: _Response) -> Reply:
    error = response.error
    if error is None:
        return Reply(PROVEN, msgspec.json.encode(response.result), JSON)
    status = error.code if error.code in _ERRORS else 422 if error.code == _INVALID_ARGUMENT else 500
    return Reply(status, msgspec.json.encode(error), JSON)


def _text(payload: bytes) -> str:
    return payload.decode("utf-8", "replace")
