"""Simulated MQTT device: a real client at QoS 1, with commands at QoS 1 or 2."""

import contextlib
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from paho.mqtt.client import Client, ConnectFlags, DisconnectFlags, MQTTMessage, MQTTv5, MQTTv311
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from demo.payload import Device, content_type, topic
from demo.simulated import ANSWER, Answered

IN_FLIGHT = 20
"""Messages of one device in flight."""
COMMANDS = "command///req/#"


class MqttDevice:
    """See `Simulated`. Callbacks run in the client's thread: they append to `_answers`, call `did` and `lost`, and publish."""

    outstanding = 50

    def __init__(
        self,
        device: Device,
        endpoint: tuple[str, int],
        did: Callable[[str, str], None],
        lost: Callable[[str], None],
    ) -> None:
        self.device = device
        self.connections = 0
        self.connected = False
        self.sent = 0
        self._did = did
        self._lost = lost
        self._answers: deque[tuple[int, bool, float]] = deque()
        self._waiting: dict[int, tuple[int, float]] = {}
        self._topic = topic(device)
        self._properties = _publish_properties(device)
        self._client = Client(
            CallbackAPIVersion.VERSION2,
            client_id=device.name,
            protocol=MQTTv5 if device.version == 5 else MQTTv311,
            clean_session=None if device.version == 5 else False,
        )
        self._client.on_connect = self._on_connect
        self._client.on_disconnect = self._on_disconnect
        self._client.on_publish = self._on_publish
        self._client.on_message = self._on_message
        self._client.max_inflight_messages_set(IN_FLIGHT)
        self._client.reconnect_delay_set(1, 1)
        self._endpoint = endpoint

    def connect(self) -> None:
        """Start the client, which connects and reconnects in a thread of its own."""
        if self.device.version == 5:
            lasting = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
            lasting.SessionExpiryInterval = 3600
            self._client.connect_async(*self._endpoint, keepalive=30, clean_start=False, properties=lasting)
        else:
            self._client.connect_async(*self._endpoint, keepalive=30)
        self._client.loop_start()

    def close(self) -> None:
        """Disconnect."""
        self._client.disconnect()
        self._client.loop_stop()

    @property
    def waiting(self) -> int:
        """Messages without acknowledgement."""
        return len(self._waiting)

    def publish(self, body: bytes, now: float) -> None:
        """Send the next message; the client keeps it until it is acknowledged."""
        self.sent += 1
        mid = self._client.publish(self._topic, body, qos=1, properties=self._properties).mid
        self._waiting[mid] = self.sent, now

    def lose_line(self) -> None:
        """Cut the connection, with an acknowledgement in flight; the client reconnects and retransmits."""
        line = self._client.socket()
        if isinstance(line, socket.socket):
            with contextlib.suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)

    def give_up(self) -> None:
        """Do nothing: an MQTT client retransmits until it has an acknowledgement."""

    def take_answers(self) -> list[Answered]:
        """See `Simulated`. Acknowledgements of answers to commands are not counted."""
        taken = []
        for _ in range(len(self._answers)):
            mid, success, at = self._answers.popleft()
            if mid in self._waiting:
                n, began = self._waiting.pop(mid)
                taken.append(Answered(n, success, at - began, at))
        return taken

    def _on_connect(self, client: Client, _: Any, flags: ConnectFlags, code: ReasonCode, more: Properties | None) -> None:  # noqa: ARG002
        self.connected = not code.is_failure
        self.connections += self.connected
        if self.connected and not flags.session_present:
            client.subscribe(COMMANDS, self.device.command_qos)

    def _on_disconnect(
        self,
        client: Client,  # noqa: ARG002
        _: Any,
        flags: DisconnectFlags,  # noqa: ARG002
        code: ReasonCode,  # noqa: ARG002
        more: Properties | None,  # noqa: ARG002
    ) -> None:
        self.connected = False
        self._lost(self.device.name)

    def _on_publish(self, client: Client, _: Any, mid: int, code: ReasonCode, more: Properties) -> None:  # noqa: ARG002
        self._answers.append((mid, not code.is_failure, time.monotonic()))

    def _on_message(self, client: Client, _: Any, message: MQTTMessage) -> None:
        """Execute a command, and answer it if it has an id. At QoS 2 the client discards duplicates."""
        command_id, name = message.topic.split("/")[4:6]
        self._did(self.device.name, name)
        if command_id:
            client.publish(f"command///res/{command_id}/200", ANSWER, qos=1)


def _publish_properties(device: Device) -> Properties | None:
    kind = content_type(device)
    if kind is None:
        return None
    properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
    properties.ContentType = kind
    return properties
