"""A bridge that is not the bottleneck: it says welcome, accepts every batch unread, and counts.

    python tests/bench/null_peer.py [CERTIFICATES]

Prints its port. After `counts` on stdin: what it has counted, and whether a gateway has said hello. After `arrivals`: for
every event of the load since it began, its number and the moment at which its batch came (CLOCK_MONOTONIC).
"""

import asyncio
import json
import sys
import time
from pathlib import Path

from certificates import BRIDGE, files
from payload import number_of

from fogline import address
from fogline.amqp.driver import AmqpConnection, listen
from fogline.amqp.engine import Engine
from fogline.amqp.login import EXTERNAL
from fogline.amqp.outcome import ACCEPTED
from fogline.amqp.security import ServerSecurity
from fogline.amqp.wire import decode
from fogline.events.codec import decode_batch, decode_range
from fogline.gateway import hello
from fogline.message import Message
from fogline.process.files.tls_files import server_context


class NullPeer:
    """A handler of one gateway's connection."""

    def __init__(self) -> None:
        self.events = 0
        self.bytes = 0
        self.control = None
        self.welcomed = False
        self.places = {}
        self.kept: list[tuple[int, bytes]] = []

    def opened(self, connection, _peer) -> None:
        """Anybody may come."""
        connection.accept()

    def link_requested(self, connection, link) -> None:
        """Every link is accepted."""
        self.places[link] = address.parse_address(link.address)
        self.control = connection.accept_link(link, credit=64) or self.control

    def received(self, connection, delivery, data) -> None:
        """Accept; answer a hello."""
        now_ns = time.monotonic_ns()
        self.bytes += len(data)
        message = decode(data)
        connection.settle(delivery, ACCEPTED)
        connection.grant(delivery.link, 1)
        if isinstance(self.places[delivery.link], address.HelloAddress):
            asked = hello.decode_hello(message.body)
            marks = [hello.Mark(each.stream) for each in asked.streams]
            body = hello.encode_hello(hello.Welcome(protocol=1, shards=1, marks=marks, time_ms=time.time_ns() // 1_000_000))
            self.control.send(Message(body=body, correlation_id=message.correlation_id))
            self.welcomed = True
            return
        self.events += message.properties["last"] - message.properties["first"] + 1
        self.kept.append((now_ns, data))

    def arrivals(self) -> list[tuple[int, int]]:
        """Return the number and arrival time of each event of the load."""
        messages = [(at, decode(data)) for at, data in self.kept]
        events = [(at, event) for at, message in messages for event in decode_batch(decode_range(message), message)]
        return [(number, at) for at, event in events if (number := number_of(event.data)) is not None]

    def link_closed(self, *_) -> None:
        """Nothing to do."""

    def closed(self, *_) -> None:
        """Nothing to do."""


async def main() -> None:
    """Serve until stdin ends."""
    peer, security = NullPeer(), ServerSecurity()
    if len(sys.argv) > 1:
        security = ServerSecurity((EXTERNAL,), server_context(files(Path(sys.argv[1]), BRIDGE), "null"))
    server = await listen("127.0.0.1", 0, lambda: AmqpConnection(Engine("null", security=security or ServerSecurity()), peer))
    print(json.dumps({"port": server.sockets[0].getsockname()[1]}), flush=True)
    loop = asyncio.get_running_loop()
    while asked := await loop.run_in_executor(None, sys.stdin.readline):
        counts = {"events": peer.events, "bytes": peer.bytes, "welcomed": peer.welcomed}
        print(json.dumps(peer.arrivals() if asked.strip() == "arrivals" else counts), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
