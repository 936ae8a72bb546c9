"""What the states that Zigbee2MQTT publishes say about one `set` or `get`. Pure."""

from collections.abc import Mapping
from typing import Any

import msgspec

from fogline.documents.media_type import JSON
from fogline_edge.profiles.broker_commands.echo import Evidence, Report
from fogline_edge.profiles.broker_commands.exchange import Verdict
from fogline_edge.profiles.broker_commands.values import ANY, expected, shows, value_of, wanted_of
from fogline_edge.profiles.broker_commands.zigbee2mqtt_errors import failure
from fogline_edge.profiles.profile import BrokerMessage


class StateRules:
    """The `EchoRules` of a command. `topics`: those of the device's state, and of the log. `last`: the last known state.

    A state counts as a whole or by single attributes (`output: attribute`). Values that the command does not name do not count.
    """

    def __init__(self, kind: str, name: str, arguments: Mapping[str, Any], topics: tuple[str, str], last: bytes) -> None:
        self._kind = kind
        self._name = name
        self._keys = frozenset(arguments)
        self._topic, self._log = topics
        self._wanted = dict.fromkeys(arguments, ANY) if kind == "get" else wanted_of(arguments)
        self._before: dict[str, Any] = {}
        self._new: dict[str, Any] = {}
        self._has_changed = False
        self.before(BrokerMessage(self._topic, last))

    def before(self, message: BrokerMessage) -> None:
        """See `EchoRules.before`."""
        self._before.update(self._attributes(message))

    def error(self, message: BrokerMessage) -> Verdict | None:
        """See `EchoRules.error`."""
        return failure(message, self._name, self._kind, self._keys) if message.topic == self._log else None

    def report(self, message: BrokerMessage) -> Report | None:
        """See `EchoRules.report`."""
        found = self._attributes(message)
        if not found:
            return None
        if not self._new:
            self._wanted = {key: expected(value, self._before.get(key)) for key, value in self._wanted.items()}
        self._has_changed |= any(self._changes(key, value) for key, value in found.items())
        self._new.update(found)
        self._before.update(found)
        body = message.payload if message.topic == self._topic else msgspec.json.encode(self._new)
        return Report(self._evidence(), body, JSON)

    def _changes(self, key: str, value: Any) -> bool:
        """Return True if an attribute has the wanted value now, and was known to have another one before."""
        former, wanted = self._before.get(key), self._wanted[key]
        return former is not None and not shows(wanted, former) and shows(wanted, value)

    def _evidence(self) -> Evidence:
        if not all(shows(value, self._new.get(key)) for key, value in self._wanted.items()):
            return Evidence.DENIES
        return Evidence.PROOF if self._has_changed else Evidence.AGREES

    def _attributes(self, message: BrokerMessage) -> dict[str, Any]:
        """Return the attributes of a message that the command names."""
        if message.topic == self._topic:
            state = message.json_object or {}
            return {key: state[key] for key in self._wanted if state.get(key) is not None}
        key = message.topic.removeprefix(f"{self._topic}/")
        if key == message.topic or key not in self._wanted or not message.payload:
            return {}
        return {key: value_of(message.payload)}
