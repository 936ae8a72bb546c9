"""Zigbee2MQTT as its users see it at a broker, without a radio: its topics, and what its devices do with a command.

It does what Zigbee2MQTT 2.14 does (`lib/extension/publish.ts`, `lib/controller.ts`): it takes `{name}/set` and `{name}/get`,
publishes the remembered state with what a command has changed once its device has answered, and logs failures.
"""

import json
import queue
from typing import Any

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion

LIMIT_S = 60.0
_NEVER_SHOWN = {"transition", "scene_recall"}
TIMEOUT = "ZCL command 0x1/1 genOnOff.on({}) failed (Timeout - 49734 - 1 - 236 - 6 - 11 after 10000ms)"
REFUSED = "ZCL command 0x1/25 hvacThermostat.write({}) failed (Status 'UNSUPPORTED_ATTRIBUTE')"
NO_ROUTE = "Data request failed with error: 'NWK_NO_ROUTE' (0xcd)"


class Zigbee2MqttProgram:
    """One program at the broker of `port`. `devices`: names by IEEE address; `groups`: names.

    `behaviour`: by name, what a device does with a command: `answers` (default), `silent`, or the error that the program logs.
    `commands`: the messages to devices and to the program itself, as (topic, payload).
    """

    def __init__(self, port: int, devices: dict[str, str], groups: tuple[str, ...] = (), base: str = "zigbee2mqtt") -> None:
        self.devices = devices
        self.groups = groups
        self.behaviour: dict[str, str] = {}
        self.states: dict[str, dict[str, Any]] = {}
        self.commands: queue.Queue[tuple[str, bytes]] = queue.Queue()
        self._base = base
        self._client = Client(CallbackAPIVersion.VERSION2, client_id=f"mqttjs_{base}", clean_session=False)
        self._client.on_connect = lambda client, *_: client.subscribe(f"{base}/#", 1)
        self._client.on_subscribe = lambda *_: self._announce()
        self._client.on_message = self._on_message
        self._client.will_set(f"{base}/bridge/state", '{"state":"offline"}', 1, retain=True)
        self._client.connect("127.0.0.1", port)
        self._client.loop_start()

    @property
    def is_connected(self) -> bool:
        """True while it is connected to the broker."""
        return self._client.is_connected()

    def close(self) -> None:
        """End it in order, as its last message says."""
        self._retain("bridge/state", {"state": "offline"})
        self._client.disconnect()
        self._client.loop_stop()

    def report(self, name: str, **changed: Any) -> None:
        """Publish the remembered state of a device, with what it has reported now."""
        state = self.states.setdefault(name, {})
        state.update(changed)
        self.publish(name, json.dumps(state))

    def publish(self, path: str, payload: str, qos: int = 0) -> None:
        """Publish a message below the base topic, and wait until it has left."""
        self._client.publish(f"{self._base}/{path}", payload, qos).wait_for_publish(LIMIT_S)

    def log_error(self, text: str) -> None:
        """Publish an error of the log."""
        self.publish("bridge/logging", json.dumps({"level": "error", "message": f"z2m: {text}", "namespace": "z2m"}))

    def set_available(self, name: str, *, online: bool) -> None:
        """Publish the availability of a device."""
        self._retain(f"{name}/availability", {"state": "online" if online else "offline"})

    def next_command(self) -> tuple[str, Any]:
        """Return topic and JSON payload of the next command. Raises `queue.Empty` after `LIMIT_S`."""
        topic, payload = self.commands.get(timeout=LIMIT_S)
        return topic, json.loads(payload)

    def _announce(self) -> None:
        coordinator = {"ieee_address": "0x00124b00120144ae", "type": "Coordinator", "friendly_name": "Coordinator"}
        definition = {"model": "ZNCZ02LM", "vendor": "Xiaomi", "description": "Mi power plug ZigBee"}
        more = {"type": "Router", "definition": definition, "power_source": "Mains (single phase)", "supported": True}
        listed = [{"ieee_address": ieee, "friendly_name": name, **more} for ieee, name in self.devices.items()]
        self._retain("bridge/state", {"state": "online"})
        self._retain("bridge/devices", [coordinator, *listed])
        self._retain("bridge/groups", [{"id": n, "friendly_name": name} for n, name in enumerate(self.groups)])

    def _retain(self, path: str, content: Any) -> None:
        self._client.publish(f"{self._base}/{path}", json.dumps(content), 1, retain=True)

    def _on_message(self, _client: Client, _data: object, message: MQTTMessage) -> None:
        path = message.topic.removeprefix(f"{self._base}/")
        name, _, kind = path.rpartition("/")
        if path.startswith("bridge/request/"):
            self.commands.put((message.topic, bytes(message.payload)))
            self._respond(path.removeprefix("bridge/request/"), json.loads(message.payload))
        elif kind in ("set", "get") and not message.retain:
            self.commands.put((message.topic, bytes(message.payload)))
            self._run(name, kind, json.loads(message.payload))

    def _respond(self, path: str, request: dict[str, Any]) -> None:
        transaction = {"transaction": request.pop("transaction")} if "transaction" in request else {}
        failed = path == "device/remove"
        outcome = {"data": {}, "status": "error", "error": "Failed to remove"} if failed else {"data": request, "status": "ok"}
        self._client.publish(f"{self._base}/bridge/response/{path}", json.dumps({**outcome, **transaction}))

    def _run(self, name: str, kind: str, arguments: dict[str, Any]) -> None:
        does = self.behaviour.get(name, "answers")
        state = self.states.setdefault(name, {})
        if does == "answers":
            if kind == "set":
                state.update({key: value for key, value in arguments.items() if key not in _NEVER_SHOWN})
            self._client.publish(f"{self._base}/{name}", json.dumps(state))
        elif does != "silent":
            text = f"z2m: Publish '{kind}' '{next(iter(arguments))}' to '{name}' failed: 'Error: {does}'"
            self._client.publish(f"{self._base}/bridge/logging", json.dumps({"level": "error", "message": text}))
