"""An MQTT load that is not the bottleneck: QoS 1 packets encoded before the clock starts, raw sockets, one process.

    python tests/bench/mqtt_load.py PORT CONNECTIONS DEVICES EVENTS RATE BYTES WINDOW

DEVICES: of each connection, which publishes for them in turn by Hono topics; 0: each connection publishes for the device of
its client id. RATE: events per second of all connections together, evenly spread; 0: as fast as the windows allow.
WINDOW: the most packets of a connection that wait for their PUBACK.

Prints one JSON line when it is ready, waits for a line on stdin, publishes, and prints the seconds from the first PUBLISH to
the last PUBACK. Each further line on stdin is answered with the times of each event on CLOCK_MONOTONIC, in nanoseconds:
`sent` and `acknowledged`.
"""

import contextlib
import json
import selectors
import socket
import sys
import time
from itertools import repeat

from payload import numbered

CONNECT = b"\x10%c\x00\x04MQTT\x04\x02\x00\x3c\x00%c%s"
PUBACK_BYTES = 4
STALLED_S = 60.0
IDLE_S = 1.0
GATHER_S = 0.0005
"""At full speed, the time in which PUBACKs gather: a wake-up for each would take the CPU from the system that is measured."""


def packet(topic: bytes, packet_id: int, payload: bytes) -> bytes:
    """Encode one PUBLISH at QoS 1."""
    body = len(topic).to_bytes(2, "big") + topic + packet_id.to_bytes(2, "big") + payload
    length = bytes((len(body),)) if len(body) < 128 else bytes((128 | len(body) & 127, len(body) >> 7))
    return b"\x32" + length + body


def topic_of(connection: int, devices: int, n: int) -> bytes:
    """The topic of the n-th event of a connection. All have the same length if there are less than 10,000 devices."""
    return b"telemetry/bench/meter-%04d" % (connection * devices + n % devices) if devices else b"telemetry"


class Client:
    """One connection. `released`: the number of its events that are due."""

    def __init__(self, port: int, number: int, packets: list[bytes], window: int) -> None:
        name = b"bench-%d" % number
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.sendall(CONNECT % (12 + len(name), len(name), name))
        if self.socket.recv(4) != b"\x20\x02\x00\x00":
            raise SystemExit("the broker did not accept the connection")
        self.socket.setblocking(False)
        self.packets = packets
        self.window = window
        self.released = 0
        self.sent_ns: list[int] = []
        self.acknowledged_ns: list[int] = []
        self._acknowledged_bytes = 0
        self._rest = b""

    @property
    def done(self) -> bool:
        """True when every packet is acknowledged."""
        return len(self.acknowledged_ns) == len(self.packets)

    def step(self) -> None:
        """Read PUBACKs, then send what is due and the window allows."""
        with contextlib.suppress(BlockingIOError):
            while data := self.socket.recv(65536):
                self._acknowledged_bytes += len(data)
            raise SystemExit("the broker closed the connection")
        if more := self._acknowledged_bytes // PUBACK_BYTES - len(self.acknowledged_ns):
            self.acknowledged_ns.extend(repeat(time.monotonic_ns(), more))
        sent = len(self.sent_ns)
        if not self._rest and (upto := min(self.released, len(self.acknowledged_ns) + self.window)) > sent:
            self._rest = b"".join(self.packets[sent:upto])
            self.sent_ns.extend(repeat(time.monotonic_ns(), upto - sent))
        if self._rest:
            with contextlib.suppress(BlockingIOError):
                self._rest = self._rest[self.socket.send(self._rest) :]


def connect(port: int, connections: int, devices: int, events: int, size: int, window: int) -> list[Client]:
    """Connect every client. The n-th event is one of connection n modulo `connections`."""
    clients = []
    for number in range(connections):
        payloads = numbered(range(number, events, connections), size)
        packets = [packet(topic_of(number, devices, n), n % 65535 + 1, payload) for n, payload in enumerate(payloads)]
        clients.append(Client(port, number, packets, window))
    return clients


def publish(clients: list[Client], rate: float, events: int) -> None:
    """Publish everything and wait for the last PUBACK."""
    selector = selectors.DefaultSelector()
    for client in clients:
        selector.register(client.socket, selectors.EVENT_READ, client)
        if not rate:
            client.released = len(client.packets)
            client.step()
    released = 0 if rate else events
    began = progress = time.monotonic()
    busy = {client for client in clients if client.packets}
    while busy:
        now = time.monotonic()
        due = min(events, int((now - began) * rate) + 1) if rate else events
        for n in range(released, due):
            clients[n % len(clients)].released += 1
            clients[n % len(clients)].step()
        released = due
        next_s = began + released / rate - now if released < events else IDLE_S
        if ready := selector.select(max(0.0, next_s)):
            progress = now
        elif now - progress > STALLED_S:
            raise SystemExit(f"no PUBACK came for {STALLED_S:.0f} s")
        if not rate:
            time.sleep(GATHER_S)
        for key, _ in ready:
            key.data.step()
            if key.data.done:
                busy.discard(key.data)


def interleaved(each: list[list[int]], events: int) -> list[int]:
    """The times of all connections in the order of the events."""
    return [each[n % len(each)][n // len(each)] for n in range(events)]


def main() -> None:
    """Publish everything, print how long it took."""
    port, connections, devices, events, size, window = (int(sys.argv[n]) for n in (1, 2, 3, 4, 6, 7))
    clients = connect(port, connections, devices, events, size, window)
    print(json.dumps({"ready": events}), flush=True)
    sys.stdin.readline()
    began = time.perf_counter()
    publish(clients, float(sys.argv[5]), events)
    print(json.dumps({"seconds": time.perf_counter() - began}), flush=True)
    while sys.stdin.readline():
        sent = interleaved([each.sent_ns for each in clients], events)
        acknowledged = interleaved([each.acknowledged_ns for each in clients], events)
        print(json.dumps({"sent": sent, "acknowledged": acknowledged}), flush=True)


if __name__ == "__main__":
    main()
