"""A publisher that is not the bottleneck: QoS 1 packets encoded before the clock starts, raw sockets, one process.

    python tests/bench/publisher.py PORT EVENTS CONNECTIONS WINDOW

Prints one JSON line when it is ready, waits for a line on stdin, publishes, and prints the seconds from the first
PUBLISH to the last PUBACK.
"""

import contextlib
import json
import selectors
import socket
import sys
import time

from payload import payloads

CONNECT = b"\x10%c\x00\x04MQTT\x04\x02\x00\x3c\x00%c%s"
PUBACK_BYTES = 4


def packets(client: int, events: int) -> list[bytes]:
    """Every PUBLISH of one client, on topic `telemetry`."""
    made = []
    for n, payload in enumerate(payloads(client, events)):
        body = b"\x00\x09telemetry" + (n % 65535 + 1).to_bytes(2, "big") + payload
        made.append(b"\x32%c%c" % (128 | len(body) & 127, len(body) >> 7) + body)
    return made


class Client:
    """One connection: sends while fewer than `window` packets wait for their PUBACK."""

    def __init__(self, port: int, number: int, events: int, window: int) -> None:
        name = b"bench-%d" % number
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.sendall(CONNECT % (12 + len(name), len(name), name))
        if self.socket.recv(4) != b"\x20\x02\x00\x00":
            raise SystemExit("the gateway did not accept the connection")
        self.socket.setblocking(False)
        self.packets = packets(number, events)
        self.window = window
        self.sent = 0
        self.acknowledged_bytes = 0
        self.rest = b""

    def step(self) -> bool:
        """Read PUBACKs, send what the window allows; `True` when all is acknowledged."""
        with contextlib.suppress(BlockingIOError):
            while data := self.socket.recv(65536):
                self.acknowledged_bytes += len(data)
        acknowledged = self.acknowledged_bytes // PUBACK_BYTES
        if not self.rest and (more := min(len(self.packets), acknowledged + self.window)) > self.sent:
            self.rest = b"".join(self.packets[self.sent : more])
            self.sent = more
        if self.rest:
            with contextlib.suppress(BlockingIOError):
                self.rest = self.rest[self.socket.send(self.rest) :]
        return acknowledged == len(self.packets)


def main() -> None:
    """Publish everything, print how long it took."""
    port, events, connections, window = map(int, sys.argv[1:])
    clients = [Client(port, number, events // connections, window) for number in range(connections)]
    selector = selectors.DefaultSelector()
    for client in clients:
        selector.register(client.socket, selectors.EVENT_READ, client)
    print(json.dumps({"ready": events}), flush=True)
    sys.stdin.readline()
    began = time.perf_counter()
    busy = set(clients)
    for client in clients:
        client.step()
    while busy:
        for key, _ in selector.select(5.0):
            if key.data.step():
                busy.discard(key.data)
    print(json.dumps({"seconds": time.perf_counter() - began}), flush=True)


if __name__ == "__main__":
    main()
