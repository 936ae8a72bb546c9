"""The simulated devices: one process with a real MQTT client for each, QoS 1, resending until acknowledged.

    python devices.py --gateways 127.0.0.1:1883,127.0.0.1:1884 --book FILE

Every device counts its messages. What a gateway has acknowledged is written to the book, one line `device n`, and is
the promise that the demo holds the table against. Stdout: a JSON line four times a second. Stdin: `finish` ends the
publishing, and then the process, once everything is acknowledged; the end of stdin ends it at once.
"""

import argparse
import contextlib
import json
import math
import random
import signal
import socket
import sys
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any, TextIO

from paho.mqtt.client import Client, ConnectFlags, DisconnectFlags, MQTTv5, MQTTv311
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from demo.payload import Device, content_type, encode, fleet, topic

IN_FLIGHT = 20
"""Messages of one device on their way."""
OUTSTANDING = 50
"""Messages of one device without acknowledgement, those that wait in it included: then it measures nothing more."""
TICK_S = 0.005
LOSE_EVERY_S = 2.0
"""How often one of the devices loses its line while it waits for an acknowledgement."""
NEWS_S = 0.25
FLUSH_S = 1.0


class Simulated:
    """One device and its client. Callbacks run in the client's thread and only append to `answers`."""

    def __init__(self, device: Device, endpoint: tuple[str, int]) -> None:
        self.device = device
        self.answers: deque[tuple[int, bool, float]] = deque()
        self.connections = 0
        self.connected = False
        self.sent = 0
        self._waiting: dict[int, tuple[int, float]] = {}
        self._topic = topic(device)
        self._properties = self._publish_properties()
        self._client = Client(
            CallbackAPIVersion.VERSION2,
            client_id=device.name,
            protocol=MQTTv5 if device.version == 5 else MQTTv311,
            clean_session=None if device.version == 5 else False,
        )
        self._client.on_connect = self._on_connect
        self._client.on_disconnect = self._on_disconnect
        self._client.on_publish = self._on_publish
        self._client.max_inflight_messages_set(IN_FLIGHT)
        self._client.reconnect_delay_set(1, 1)
        self._endpoint = endpoint

    def connect(self) -> None:
        """Begin; the client connects, and connects again, in a thread of its own."""
        if self.device.version == 5:
            lasting = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
            lasting.SessionExpiryInterval = 3600
            self._client.connect_async(*self._endpoint, keepalive=30, clean_start=False, properties=lasting)
        else:
            self._client.connect_async(*self._endpoint, keepalive=30)
        self._client.loop_start()

    def close(self) -> None:
        """Leave."""
        self._client.disconnect()
        self._client.loop_stop()

    @property
    def waiting(self) -> int:
        """Messages without acknowledgement."""
        return len(self._waiting)

    def publish(self, now: float) -> None:
        """Send the next message; the client keeps it until it is acknowledged."""
        self.sent += 1
        temperature = round(20 + 5 * math.sin(now / 30 + hash(self.device.name) % 7), 2)
        body = encode(self.device, self.sent, temperature)
        mid = self._client.publish(self._topic, body, qos=1, properties=self._properties).mid
        self._waiting[mid] = self.sent, now

    def lose_line(self) -> None:
        """The radio is gone for a moment, with an acknowledgement on its way; the client connects again and resends."""
        line = self._client.socket()
        if isinstance(line, socket.socket):
            with contextlib.suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)

    def take_answers(self) -> list[tuple[int, bool, float]]:
        """What was acknowledged since: counter, whether with success, seconds that it took."""
        taken = []
        for _ in range(len(self.answers)):
            mid, success, at = self.answers.popleft()
            if mid in self._waiting:
                n, began = self._waiting.pop(mid)
                taken.append((n, success, at - began))
        return taken

    def _publish_properties(self) -> Properties | None:
        kind = content_type(self.device)
        if kind is None:
            return None
        properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
        properties.ContentType = kind
        return properties

    def _on_connect(self, client: Client, _: Any, flags: ConnectFlags, code: ReasonCode, more: Properties | None) -> None:  # noqa: ARG002
        self.connected = not code.is_failure
        self.connections += self.connected

    def _on_disconnect(
        self,
        client: Client,  # noqa: ARG002
        _: Any,
        flags: DisconnectFlags,  # noqa: ARG002
        code: ReasonCode,  # noqa: ARG002
        more: Properties | None,  # noqa: ARG002
    ) -> None:
        self.connected = False

    def _on_publish(self, client: Client, _: Any, mid: int, code: ReasonCode, more: Properties) -> None:  # noqa: ARG002
        self.answers.append((mid, not code.is_failure, time.monotonic()))


class Fleet:
    """All devices, at a rate of `rate` messages/s together."""

    def __init__(self, devices: list[Simulated], rate: float, book: TextIO) -> None:
        self.finishing = threading.Event()
        self._devices = devices
        self._rate = rate
        self._book = book
        self._acknowledged = 0
        self._refused = 0
        self._latencies: deque[float] = deque(maxlen=2000)

    def run(self) -> None:
        """Publish until `finishing`, then wait for every acknowledgement."""
        for each in self._devices:
            each.connect()
        budget, turn, last = 0.0, 0, time.monotonic()
        news_at = flush_at = lose_at = last
        while not (self.finishing.is_set() and not any(each.waiting or each.answers for each in self._devices)):
            now = time.monotonic()
            budget = min(budget + (now - last) * self._rate, self._rate)
            last = now
            if not self.finishing.is_set():
                turn, budget = self._publish(turn, budget, now)
            self._take_answers()
            if now >= lose_at and not self.finishing.is_set():
                self._lose_a_line()
                lose_at = now + LOSE_EVERY_S
            if now >= flush_at:
                self._book.flush()
                flush_at = now + FLUSH_S
            if now >= news_at:
                tell(self._news())
                news_at = now + NEWS_S
            time.sleep(TICK_S)
        self._book.flush()
        tell({**self._news(), "finished": True, "sent": {each.device.name: each.sent for each in self._devices}})
        for each in self._devices:
            each.close()

    def _lose_a_line(self) -> None:
        """Of a device that waits for an acknowledgement: then the gateway has, or will have, what is sent again."""
        waiting = [each for each in self._devices if each.waiting and each.connected]
        if waiting:
            random.choice(waiting).lose_line()

    def _publish(self, turn: int, budget: float, now: float) -> tuple[int, float]:
        """Spend the budget on the devices in turn; those that wait for too much are passed over."""
        passed = 0
        while budget >= 1 and passed < len(self._devices):
            device = self._devices[turn % len(self._devices)]
            turn += 1
            if device.waiting >= OUTSTANDING:
                passed += 1
                continue
            passed = 0
            device.publish(now)
            budget -= 1
        return turn, budget

    def _take_answers(self) -> None:
        for each in self._devices:
            for n, success, took_s in each.take_answers():
                if success:
                    self._acknowledged += 1
                    self._latencies.append(took_s)
                    self._book.write(f"{each.device.name} {n}\n")
                else:
                    self._refused += 1

    def _news(self) -> dict[str, Any]:
        found = sorted(self._latencies)
        self._latencies.clear()
        return {
            "acknowledged": self._acknowledged,
            "refused": self._refused,
            "waiting": sum(each.waiting for each in self._devices),
            "connected": sum(each.connected for each in self._devices),
            "connections": sum(each.connections for each in self._devices),
            "p50_ms": round(found[len(found) // 2] * 1000, 1) if found else None,
            "p99_ms": round(found[len(found) * 99 // 100] * 1000, 1) if found else None,
        }


def tell(news: dict[str, Any]) -> None:
    """One line for the demo."""
    sys.stdout.write(json.dumps(news) + "\n")
    sys.stdout.flush()


def listen_for_finish(crowd: Fleet) -> None:
    """Read stdin; its end means that the demo is gone."""
    for line in sys.stdin:
        if line.strip() == "finish":
            crowd.finishing.set()
    signal.raise_signal(signal.SIGTERM)


def main() -> int:
    """Run the devices."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gateways", required=True, help="host:port of each gateway, separated by commas")
    parser.add_argument("--book", type=Path, required=True, help="where to write down what was acknowledged")
    parser.add_argument("--devices", type=int, default=40, help="how many (default: 40)")
    parser.add_argument("--rate", type=float, default=430.0, help="messages/s of all together (default: 430)")
    arguments = parser.parse_args()
    endpoints = [(host, int(port)) for host, _, port in (each.rpartition(":") for each in arguments.gateways.split(","))]
    devices = [Simulated(each, endpoints[each.gateway]) for each in fleet(arguments.devices, len(endpoints))]
    with arguments.book.open("w") as book:
        crowd = Fleet(devices, arguments.rate, book)
        threading.Thread(target=listen_for_finish, args=(crowd,), daemon=True).start()
        tell({"ready": "devices"})
        crowd.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
