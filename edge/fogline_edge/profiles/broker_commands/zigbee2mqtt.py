"""Commands to devices and groups of Zigbee2MQTT, and to Zigbee2MQTT itself. Pure.

| device | command | published to | decided by |
|---|---|---|---|
| a device or group | `set`, arguments `{"state": "ON"}` | `{name}/set` | the state on `{name}`, an error on `bridge/logging` |
| a device or group | `get`, arguments `{"state": ""}` | `{name}/get` | the same |
| the bridge itself | `permit_join`, `device.rename`, ... | `bridge/request/...` | the answer with its id as `transaction` |

Zigbee2MQTT publishes a state after `set` because its own command to the device has succeeded (`optimistic`, the default). For
a device this means that its radio has acknowledged the command or answered it. For a group it only means that the command
was sent, because nobody answers a multicast. With `optimistic: false` it publishes what the device reports, if it reports.

A published state holds every attribute that Zigbee2MQTT remembers of the device, old ones too.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from fogline.address import device_identifier, is_identifier
from fogline.commands.command import Command, Reply
from fogline.documents.json_document import read_document
from fogline.documents.media_type import JSON
from fogline.errors import Poison
from fogline.events.device_report import AVAILABILITY, read_availability
from fogline_edge.profiles.broker_commands.answer import AnswerExchange
from fogline_edge.profiles.broker_commands.directory import Directory
from fogline_edge.profiles.broker_commands.echo import EchoExchange
from fogline_edge.profiles.broker_commands.exchange import PROVEN, CommandExchange, NamedAnswer, Publication
from fogline_edge.profiles.broker_commands.last_states import LastStates
from fogline_edge.profiles.broker_commands.values import wanted_of
from fogline_edge.profiles.broker_commands.zigbee2mqtt_state import StateRules
from fogline_edge.profiles.profile import BrokerMessage, Filter
from fogline_edge.profiles.zigbee2mqtt import decode_devices

_KINDS = ("set", "get")
_BRIDGE = "bridge/"
_SUFFIX = f"/{AVAILABILITY}"
_FAILED = 500


class _Group(msgspec.Struct):
    friendly_name: str


class _Response(msgspec.Struct):
    status: str
    transaction: str | int | float | None = None


class Zigbee2MqttCommands:
    """The commands of one Zigbee2MQTT. `notes`: of its directory, from a former run."""

    def __init__(self, base_topic: str, notes: Mapping[str, bytes]) -> None:
        self._prefix = f"{base_topic}/"
        self._bridge = device_identifier(base_topic, "base_topic")
        self.directory = Directory(notes, listed=True, program=self._bridge)
        self._devices: dict[str, str] = {}
        self._groups: dict[str, str] = {}
        self._identifiers: dict[str, str] = {}
        self._states = LastStates()

    @property
    def filters(self) -> Iterable[Filter]:
        """The groups: they are published as retained, and only when they change."""
        return (Filter(f"{self._prefix}{_BRIDGE}groups", always=True),)

    def note(self, message: BrokerMessage) -> None:
        """See `BrokerCommandProfile.note`."""
        path = message.topic.removeprefix(self._prefix)
        match path:
            case "bridge/devices":
                self._learn_devices(message.payload)
            case "bridge/groups":
                self._learn_groups(message.payload)
            case "bridge/state":
                self._set_online(self._bridge, self._prefix, message)
            case _ if path.startswith(_BRIDGE):
                pass
            case _ if path.endswith(_SUFFIX):
                name = path.removesuffix(_SUFFIX)
                if (device := self._device_of(name)) is not None:
                    self._set_online(device, name, message)
            case _ if message.payload[:1] == b"{":
                self._states.note(message.topic, message.payload)

    def answer(self, message: BrokerMessage) -> NamedAnswer | None:  # noqa: ARG002 - the interface
        """See `BrokerCommandProfile.answer`."""
        return None

    def begin(self, command: Command) -> CommandExchange:
        """See `BrokerCommandProfile.begin`."""
        if command.device == self._bridge:
            return self._request(command)
        name = self.directory.name_of(command.device)
        if name is None or set(name) & set("+#\0"):
            raise Poison("bad-device", f"no device of Zigbee2MQTT has the name of {command.device}, or it is no topic")
        if command.name not in _KINDS:
            raise Poison("no-command", f"a device of Zigbee2MQTT has no command {command.name}; it has {', '.join(_KINDS)}")
        arguments = _object(command.data, 'for example {"state": "ON"}')
        if not wanted_of(arguments):
            raise Poison("no-argument", f'{command.name} names no attribute; for example {{"state": "ON"}}')
        topic = self._prefix + name
        rules = StateRules(command.name, name, arguments, (topic, f"{self._prefix}{_BRIDGE}logging"), self._states.get(topic))
        return EchoExchange(Publication(f"{topic}/{command.name}", command.data), rules)

    def _request(self, command: Command) -> CommandExchange:
        path = command.name.replace(".", "/")
        arguments = _object(command.data or b"{}", 'for example {"value": true}')
        answers = f"{self._prefix}{_BRIDGE}response/{path}"

        def answer(message: BrokerMessage) -> Reply | None:
            if message.topic != answers:
                return None
            try:
                found = read_document(message.payload, _Response, "a response")
            except Poison:
                return None
            if found.transaction != command.id:
                return None
            return Reply(PROVEN if found.status == "ok" else _FAILED, message.payload, JSON)

        body = msgspec.json.encode({**arguments, "transaction": command.id})
        return AnswerExchange(Publication(f"{self._prefix}{_BRIDGE}request/{path}", body), answer)

    def _learn_devices(self, payload: bytes) -> None:
        try:
            devices = decode_devices(payload)
        except Poison:  # it is a dead letter already
            return
        known = (each for each in devices if not each.is_coordinator and is_identifier(each.ieee_address))
        self._devices = {each.ieee_address: each.friendly_name for each in known}
        self._replace()

    def _learn_groups(self, payload: bytes) -> None:
        try:
            groups = read_document(payload, list[_Group], "bridge/groups")
            self._groups = {device_identifier(each.friendly_name, "group"): each.friendly_name for each in groups}
        except Poison:
            return
        self._replace()

    def _replace(self) -> None:
        known = {**self._groups, **self._devices}
        self._identifiers = {name: device for device, name in known.items()}
        self.directory.replace({**known, self._bridge: _BRIDGE})

    def _device_of(self, name: str) -> str | None:
        try:
            return self._identifiers.get(name) or device_identifier(name, "friendly name")
        except Poison:
            return None

    def _set_online(self, device: str, name: str, message: BrokerMessage) -> None:
        online = read_availability(message.payload)
        if online is not None:
            self.directory.set_online(device, name, online=online)


def _object(data: bytes, example: str) -> dict[str, Any]:
    try:
        return read_document(data, dict[str, Any], "the argument")
    except Poison as error:
        raise Poison("bad-argument", f"{error}; expected a JSON object, {example}") from None
