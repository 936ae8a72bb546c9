"""A subscriber that is not the bottleneck: the peer of an MQTT bridge. It acknowledges at QoS 1, and counts.

    python tests/bench/mqtt_subscriber.py PORT

Prints one JSON line when it has subscribed, and one when a bridge has connected to the broker. After `counts` on stdin: what
it has counted. After `arrivals`: for every event since it began, its number and the moment of its arrival (CLOCK_MONOTONIC).
All PUBLISH packets of one run must have the same length.
"""

import json
import selectors
import socket
import sys
import time
from typing import Any

from payload import number_of

CONNECT = b"\x10\x12\x00\x04MQTT\x04\x00\x00\x00\x00\x06bench-"  # cleansession false, no keep alive
TOPICS = (b"$SYS/broker/connection/+/state", b"telemetry/#")
PUBLISH, QOS1 = 0x30, 0x02
RECEIVE_BYTES = 1 << 18
CALM_EVENTS = 4
GATHER_S = 0.0005
"""After more events than `CALM_EVENTS` at once, the time in which more gather: a wake-up takes CPU from the measured system."""


class Subscriber:
    """The connection, and the arrivals as they came: a moment and whole packets."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.sendall(CONNECT)
        filters = b"".join(len(each).to_bytes(2, "big") + each + b"\x01" for each in TOPICS)
        self.socket.sendall(bytes((0x82, 2 + len(filters))) + b"\x00\x01" + filters)
        self.bridged = False
        self.events = self.bytes = 0
        self.kept: list[tuple[int, bytes]] = []
        self._rest = b""
        self._length = 0

    def receive(self) -> int:
        """Read once; acknowledge and keep every complete packet. Returns the number of events among them."""
        before = self.events
        data = self.socket.recv(RECEIVE_BYTES)
        if not data:
            raise SystemExit("the broker closed the connection")
        now_ns, data = time.monotonic_ns(), self._rest + data
        while data and not self._is_event(data):
            end, body = header(data)
            if not end or len(data) < end:
                break
            self._acknowledge_other(data[:end], body)
            data = data[end:]
        if self._is_event(data):
            self._length = self._length or header(data)[0]
            whole = len(data) // self._length if self._length else 0
            if whole:
                self._take(now_ns, data[: whole * self._length], whole)
            data = data[whole * self._length :] if self._length else data
        self._rest = data
        return self.events - before

    @staticmethod
    def _is_event(data: bytes) -> bool:
        return len(data) >= 5 and data[0] & 0xF0 == PUBLISH and b"$SYS" not in data[2:10]

    def _take(self, now_ns: int, data: bytes, events: int) -> None:
        kinds = set(data[:: self._length])
        if not kinds <= {0x32, 0x3A}:
            raise SystemExit(f"packets of more than one length or kind: {kinds}")
        _, body = header(data)
        at = body + 2 + int.from_bytes(data[body : body + 2], "big")
        answer = bytearray(b"\x40\x02\x00\x00" * events)
        answer[2::4], answer[3::4] = data[at :: self._length], data[at + 1 :: self._length]
        self.socket.sendall(answer)
        self.events += events
        self.bytes += len(data)
        self.kept.append((now_ns, data))

    def _acknowledge_other(self, packet: bytes, body: int) -> None:
        if packet[0] & 0xF0 != PUBLISH:
            return
        at = body + 2 + int.from_bytes(packet[body : body + 2], "big")
        if packet[0] & QOS1:
            self.socket.sendall(b"\x40\x02" + packet[at : at + 2])
            at += 2
        self.bridged = packet[at:] == b"1"

    def arrivals(self) -> list[tuple[int | None, int]]:
        """Return the number and arrival time of each event."""
        found = []
        for now_ns, data in self.kept:
            _, body = header(data)
            at = body + 4 + int.from_bytes(data[body : body + 2], "big")
            found += [(number_of(data[k + at : k + self._length]), now_ns) for k in range(0, len(data), self._length)]
        return found


def header(data: bytes) -> tuple[int, int]:
    """Return the end of the packet that `data` begins with, and the start of its body; zeros while they are unknown."""
    length = shift = 0
    for at, digit in enumerate(data[1:5], 2):
        length |= (digit & 127) << shift
        shift += 7
        if digit < 128:
            return at + length, at
    return 0, 0


def say(what: Any) -> None:
    """Print a JSON line."""
    print(json.dumps(what), flush=True)


def main() -> None:
    """Serve until stdin ends."""
    subscriber = Subscriber(int(sys.argv[1]))
    selector = selectors.DefaultSelector()
    selector.register(subscriber.socket, selectors.EVENT_READ)
    selector.register(sys.stdin, selectors.EVENT_READ)
    say({"subscribed": True})
    bridged = False
    while True:
        for key, _ in selector.select():
            if key.fileobj is subscriber.socket:
                if subscriber.receive() > CALM_EVENTS:
                    time.sleep(GATHER_S)
                if subscriber.bridged and not bridged:
                    bridged = True
                    say({"bridged": True})
            else:
                asked = sys.stdin.readline().strip()
                if not asked:
                    return
                counts = {"events": subscriber.events, "bytes": subscriber.bytes}
                say(subscriber.arrivals() if asked == "arrivals" else counts)


if __name__ == "__main__":
    main()
