"""The simulated devices: one process with a real MQTT or CoAP client for each.

    python devices.py --gateways 127.0.0.1:1883,127.0.0.1:1884 --coap-gateways 127.0.0.1:5683,127.0.0.1:5684 \
        --book FILE --effects FILE

Every device counts its messages. What a gateway has acknowledged is written to the book, one line `device n`, and is
the promise that the demo holds the table against. What a device has done for a command is written to the effects, one
line `device command` each time. Stdout: a JSON line four times a second. Stdin: `cut N` ends the connections of gateway N
(from 0); `quiet` ends the messages; `finish` ends the process, once everything is acknowledged; the end of stdin ends it at
once.
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

from demo.coap_device import CoapDevice, Radio
from demo.mqtt_device import MqttDevice
from demo.payload import encode, fleet
from demo.simulated import Simulated

TICK_S = 0.005
LOSE_EVERY_S = 2.0
"""How often one of the devices loses its line while it waits for an acknowledgement."""
NEWS_S = 0.25
FLUSH_S = 1.0
GIVE_UP_S = 20.0
"""How long CoAP devices wait, at the end, for a response that a gateway promised before it was killed."""

Effects = deque[tuple[str, str]]
"""Device and command, in the order in which they were done; written to by many threads."""


class Books:
    """What is written down: acknowledgements, and what was done for commands."""

    def __init__(self, acknowledged: TextIO, effects: TextIO, done: Effects) -> None:
        self._acknowledged = acknowledged
        self._effects = effects
        self._done = done

    def promise(self, device: str, n: int) -> None:
        """A message was acknowledged."""
        self._acknowledged.write(f"{device} {n}\n")

    def flush(self) -> None:
        """Have everything on its way to the file."""
        for _ in range(len(self._done)):
            self._effects.write("{} {}\n".format(*self._done.popleft()))
        self._acknowledged.flush()
        self._effects.flush()


class Fleet:
    """All devices, at a rate of `rate` messages/s together. `cut`: gateways whose devices are to lose their lines."""

    def __init__(self, devices: list[Simulated], rate: float, books: Books) -> None:
        self.quiet = threading.Event()
        self.cut: deque[int] = deque()
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
        news_at = flush_at = lose_at = last
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
            if now >= news_at:
                tell(self._news())
                news_at = now + NEWS_S
            time.sleep(TICK_S)
        for each in self._devices:
            each.close()
        self._books.flush()
        tell({**self._news(), "finished": True, "sent": {each.device.name: each.sent for each in self._devices}})

    def _lose_a_line(self) -> None:
        """Of a device that waits for an acknowledgement: then the gateway has, or will have, what is sent again."""
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
        """Spend the budget on the devices in turn; those that wait for too much are passed over."""
        passed = 0
        while budget >= 1 and passed < len(self._devices):
            each = self._devices[turn % len(self._devices)]
            turn += 1
            if each.waiting >= each.outstanding:
                passed += 1
                continue
            passed = 0
            temperature = round(20 + 5 * math.sin(now / 30 + hash(each.device.name) % 7), 2)
            each.publish(encode(each.device, each.sent + 1, temperature), now)
            budget -= 1
        return turn, budget

    def _take_answers(self) -> None:
        for each in self._devices:
            for answered in each.take_answers():
                if answered.success:
                    self._acknowledged += 1
                    self._latencies.append(answered.took_s)
                    self._books.promise(each.device.name, answered.n)
                elif answered.success is None:
                    self._unknown += 1
                else:
                    self._refused += 1

    def _news(self) -> dict[str, Any]:
        found = sorted(self._latencies)
        self._latencies.clear()
        return {
            "acknowledged": self._acknowledged,
            "refused": self._refused,
            "unknown": self._unknown,
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


def listen(crowd: Fleet) -> None:
    """Read stdin; its end means that the demo is gone."""
    for line in sys.stdin:
        word, _, rest = line.strip().partition(" ")
        if word == "cut":
            crowd.cut.append(int(rest))
        if word in ("quiet", "finish"):
            crowd.quiet.set()
        if word == "finish":
            crowd.finishing.set()
    signal.raise_signal(signal.SIGTERM)


def build(arguments: argparse.Namespace, radio: Radio, done: Effects) -> list[Simulated]:
    """The devices of the command line."""
    mqtt, coap = endpoints(arguments.gateways), endpoints(arguments.coap_gateways)
    serving = iter([int(port) for port in arguments.serving.split(",") if port])
    devices: list[Simulated] = []

    def did(device: str, command: str) -> None:
        done.append((device, command))

    for each in fleet(arguments.devices, len(mqtt)):
        if each.coap:
            port = next(serving, 0) if each.serves else 0
            devices.append(CoapDevice(each, coap[each.gateway], did, radio, port=port))
        else:
            devices.append(MqttDevice(each, mqtt[each.gateway], did))
    return devices


def endpoints(text: str) -> list[tuple[str, int]]:
    """`host:port,host:port`."""
    return [(host, int(port)) for host, _, port in (each.rpartition(":") for each in text.split(","))]


def main() -> int:
    """Run the devices."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gateways", required=True, help="MQTT's host:port of each gateway, separated by commas")
    parser.add_argument("--coap-gateways", required=True, help="CoAP's host:port of each gateway, separated by commas")
    parser.add_argument("--serving", default="", help="ports of the CoAP devices that serve, separated by commas")
    parser.add_argument("--book", type=Path, required=True, help="where to write down what was acknowledged")
    parser.add_argument("--effects", type=Path, required=True, help="where to write down what was done for commands")
    parser.add_argument("--devices", type=int, default=40, help="how many (default: 40)")
    parser.add_argument("--rate", type=float, default=430.0, help="messages/s of all together (default: 430)")
    arguments = parser.parse_args()
    done: Effects = deque()
    radio = Radio()
    with arguments.book.open("w") as book, arguments.effects.open("w") as effects:
        crowd = Fleet(build(arguments, radio, done), arguments.rate, Books(book, effects, done))
        threading.Thread(target=listen, args=(crowd,), daemon=True).start()
        tell({"ready": "devices"})
        crowd.run()
    radio.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
