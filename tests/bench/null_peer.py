"""A bridge that is not the bottleneck: it says welcome, accepts every batch unread, and counts.

    python tests/bench/null_peer.py

Prints its port; after each line on stdin, what it has counted.
"""

import asyncio
import json
import sys

from fogline import address, hello
from fogline.amqp.driver import Connection, listen
from fogline.amqp.engine import Engine
from fogline.amqp.outcome import ACCEPTED
from fogline.amqp.wire import decode
from fogline.message import Message


class NullPeer:
    """A handler of one gateway's connection."""

    def __init__(self) -> None:
        self.events = 0
        self.bytes = 0
        self.control = None
        self.places = {}

    def opened(self, connection, _peer) -> None:
        """Anybody may come."""
        connection.accept()

    def link_requested(self, connection, link) -> None:
        """Every link is accepted."""
        self.places[link] = address.parse_address(link.address)
        self.control = connection.accept_link(link, credit=64) or self.control

    def received(self, connection, delivery, data) -> None:
        """Accept; answer a hello."""
        self.bytes += len(data)
        message = decode(data)
        connection.settle(delivery, ACCEPTED)
        connection.grant(delivery.link, 1)
        if isinstance(self.places[delivery.link], address.Hello):
            asked = hello.decode_hello(message.body)
            marks = [hello.Mark(each.stream) for each in asked.streams]
            body = hello.encode_hello(hello.Welcome(protocol=1, shards=1, marks=marks))
            self.control.send(Message(body=body, correlation_id=message.correlation_id))
        else:
            self.events += message.properties["last"] - message.properties["first"] + 1

    def link_closed(self, *_) -> None:
        """Nothing to do."""

    def closed(self, *_) -> None:
        """Nothing to do."""


async def main() -> None:
    """Serve until stdin ends."""
    peer = NullPeer()
    server = await listen("127.0.0.1", 0, lambda: Connection(Engine("null", server=True), peer))
    print(server.sockets[0].getsockname()[1], flush=True)
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, sys.stdin.readline):
        print(json.dumps({"events": peer.events, "bytes": peer.bytes}), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
