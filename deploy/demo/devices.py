"""Simulated devices: one process with a real MQTT or CoAP client for each device.

    python devices.py --gateways 127.0.0.1:1883,127.0.0.1:1884 --coap-gateways 127.0.0.1:5683,127.0.0.1:5684 \
        --acknowledged FILE --log FILE

Every device counts its messages. The process writes each acknowledged message to `--acknowledged`, one line `device n time`
(seconds of the monotonic clock); the demo compares these with Kafka and the table. It writes each executed command and each
lost connection to `--log` (`demo.device_log`).
Stdout: a JSON line four times a second. Stdin: `cut N` cuts the connections to gateway N (from 0); `pause N` stops the messages
to it until `resume N`; `quiet` stops all messages; `finish` ends the process after the last acknowledgement. The end of stdin
ends it at once.
"""

import argparse
import json
import math
import random
import signal
import sys
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any, TextIO

from demo.coap_device import CoapDevice, CoapLoop
from demo.device_log import did_line, lost_line
from demo.mqtt_device import MqttDevice
from demo.payload import encode, fleet
from demo.simulated import Simulated

TICK_S = 0.005
LOSE_EVERY_S = 2.0
"""Period at which a device that waits for an acknowledgement loses its connection."""
STATS_S = 0.25
FLUSH_S = 1.0
GIVE_UP_S = 20.0
"""At the end, CoAP devices wait this long for a response that a gateway promised before it was killed."""

LogLines = deque[str]
"""Lines of `demo.device_log` in order; many threads append to it."""


class Books:
    """Writes the file of acknowledged messages and the devices' log."""

    def __init__(self, acknowledged: TextIO, log: TextIO, lines: LogLines) -> None:
        self._acknowledged = acknowledged
        self._log = log
        self._lines = lines

    def promise(self, device: str, n: int, at_s: float) -> None:
        """Note an acknowledged message."""
        self._acknowledged.write(f"{device} {n} {at_s:.3f}\n")

    def flush(self) -> None:
        """Write everything to the files."""
        for _ in range(len(self._lines)):
            self._log.write(self._lines.popleft())
        self._acknowledged.flush()
        self._log.flush()


class Fleet:
    """All devices, at `rate` messages/s together. `cut`: gateways whose devices must lose their connections.

    `paused`: gateways whose devices send nothing.
    """

    def __init__(self, devices: list[Simulated], rate: float, books: Books) -> None:
        self.quiet = threading.Event()
        self.cut: deque[int] = deque()
        self.paused: set[int] = set()
        self.finishing = threading.Event()
        self._devices = devices
        self._rate = rate
        self._books = books
        self._acknowledged = 0
        self._refused = 0
        self._unknown = 0
        self._latencies: deque[float] = deque(maxlen=2000)

    def run(self) -> None:
        """Publish until `quiet`; after `finishing`, wait for every acknowledgement."""
        for each in self._devices:
            each.connect()
        budget, turn, last = 0.0, 0, time.monotonic()
        stats_at = flush_at = lose_at = last
        give_up_at = math.inf
        while not self.finishing.is_set() or any(each.waiting for each in self._devices):
            now = time.monotonic()
            budget = min(budget + (now - last) * self._rate, self._rate)
            last = now
            if not self.quiet.is_set():
                turn, budget = self._publish(turn, budget, now)
                give_up_at = now + GIVE_UP_S
            elif now >= give_up_at:
                self._give_up()
                give_up_at = math.inf
            self._take_answers()
            if now >= lose_at and not self.quiet.is_set():
                self._lose_a_line()
                lose_at = now + LOSE_EVERY_S
            while self.cut:
                self._lose_lines_of(self.cut.popleft())
            if now >= flush_at:
                self._books.flush()
                flush_at = now + FLUSH_S
            if now >= stats_at:
                tell(self._stats())
                stats_at = now + STATS_S
            time.sleep(TICK_S)
        for each in self._devices:
            each.close()
        self._books.flush()
        tell({**self._stats(), "finished": True, "sent": {each.device.name: each.sent for each in self._devices}})

    def _lose_a_line(self) -> None:
        """Cut the connection of a device that waits for an acknowledgement, so that it retransmits a stored message."""
        waiting = [each for each in self._devices if each.waiting and each.connected and not each.device.coap]
        if waiting:
            random.choice(waiting).lose_line()

    def _lose_lines_of(self, gateway: int) -> None:
        for each in self._devices:
            if each.device.gateway == gateway:
                each.lose_line()

    def _give_up(self) -> None:
        for each in self._devices:
            each.give_up()

    def _publish(self, turn: int, budget: float, now: float) -> tuple[int, float]:
        """Spend the budget on the devices in turn; skip those with too many messages in flight."""
        passed = 0
        while budget >= 1 and passed < len(self._devices):
            each = self._devices[turn % len(self._devices)]
            turn += 1
            if each.waiting >= each.outstanding or each.device.gateway in self.paused:
                passed += 1
                continue
            passed = 0
            temperature = round(20 + 5 * math.sin(now / 30 + hash(each.device.name) % 7), 2)
            each.publish(encode(each.device, each.sent + 1, temperature), now)
            budget -= 1
        return turn, budget

    def _waiting_at(self, gateway: int) -> int:
        return sum(each.waiting for each in self._devices if each.device.gateway == gateway)

    def _take_answers(self) -> None:
        for each in self._devices:
            for answered in each.take_answers():
                if answered.success:
                    self._acknowledged += 1
                    self._latencies.append(answered.took_s)
                    self._books.promise(each.device.name, answered.n, answered.at_s)
                elif answered.success is None:
                    self._unknown += 1
                else:
                    self._refused += 1

    def _stats(self) -> dict[str, Any]:
        found = sorted(self._latencies)
        self._latencies.clear()
        return {
            "acknowledged": self._acknowledged,
            "refused": self._refused,
            "unknown": self._unknown,
            "waiting": sum(each.waiting for each in self._devices),
            "waiting_at": [
                self._waiting_at(number) for number in range(1 + max(each.device.gateway for each in self._devices))
            ],
            "connected": sum(each.connected for each in self._devices),
            "connections": sum(each.connections for each in self._devices),
            "p50_ms": round(found[len(found) // 2] * 1000, 1) if found else None,
            "p99_ms": round(found[len(found) * 99 // 100] * 1000, 1) if found else None,
        }


def tell(stats: dict[str, Any]) -> None:
    """Print one JSON line for the demo."""
    sys.stdout.write(json.dumps(stats) + "\n")
    sys.stdout.flush()


def listen(devices: Fleet) -> None:
    """Read stdin; its end means that the demo has ended."""
    for line in sys.stdin:
        word, _, rest = line.strip().partition(" ")
        if word == "cut":
            devices.cut.append(int(rest))
        if word == "pause":
            devices.paused.add(int(rest))
        if word == "resume":
            devices.paused.discard(int(rest))
        if word in ("quiet", "finish"):
            devices.quiet.set()
        if word == "finish":
            devices.finishing.set()
    signal.raise_signal(signal.SIGTERM)


def build(arguments: argparse.Namespace, radio: CoapLoop, lines: LogLines) -> list[Simulated]:
    """Make the devices of the command line."""
    mqtt, coap = endpoints(arguments.gateways), endpoints(arguments.coap_gateways)
    serving = iter([int(port) for port in arguments.serving.split(",") if port])
    devices: list[Simulated] = []

    def did(device: str, command: str) -> None:
        lines.append(did_line(time.time(), device, command))

    def lost(device: str) -> None:
        lines.append(lost_line(time.time(), device))

    for each in fleet(arguments.devices, len(mqtt)):
        if each.coap:
            port = next(serving, 0) if each.serves else 0
            devices.append(CoapDevice(each, coap[each.gateway], did, radio, port=port))
        else:
            devices.append(MqttDevice(each, mqtt[each.gateway], did, lost))
    return devices


def endpoints(text: str) -> list[tuple[str, int]]:
    """Parse `host:port,host:port`."""
    return [(host, int(port)) for host, _, port in (each.rpartition(":") for each in text.split(","))]


def main() -> int:
    """Run the devices."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gateways", required=True, help="MQTT's host:port of each gateway, separated by commas")
    parser.add_argument("--coap-gateways", required=True, help="CoAP's host:port of each gateway, separated by commas")
    parser.add_argument("--serving", default="", help="ports of the CoAP devices that serve, separated by commas")
    parser.add_argument("--acknowledged", type=Path, required=True, help="file for the acknowledged messages")
    parser.add_argument("--log", type=Path, required=True, help="file for the executed commands and lost connections")
    parser.add_argument("--devices", type=int, default=40, help="number of devices (default: 40)")
    parser.add_argument("--rate", type=float, default=200.0, help="messages/s of all together (default: 200)")
    arguments = parser.parse_args()
    lines: LogLines = deque()
    radio = CoapLoop()
    with arguments.acknowledged.open("w") as acknowledged_file, arguments.log.open("w") as log:
        devices = Fleet(build(arguments, radio, lines), arguments.rate, Books(acknowledged_file, log, lines))
        threading.Thread(target=listen, args=(devices,), daemon=True).start()
        tell({"ready": "devices"})
        devices.run()
    radio.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
