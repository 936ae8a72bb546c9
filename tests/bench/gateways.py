"""Gateways that are not the bottleneck: batches encoded before the clock starts, one connection each, the real protocol.

    python tests/bench/gateways.py PORT TENANT SHARDS EVENTS [CERTIFICATES] [--bridges N]

One gateway for each shard, connected to the bridge that owns it. Prints one JSON line when all are welcome,
and each of N bridges owns as many shards. Then it waits for a line on stdin, sends everything as fast as the bridges' credit
allows, and prints the seconds until the last batch was accepted.
"""

import argparse
import asyncio
import itertools
import json
import sys
import time
from collections import Counter
from pathlib import Path

from certificates import files
from records import BATCH, events_of, stream_of

from fogline import address
from fogline.amqp.driver import AmqpConnection, connect
from fogline.amqp.engine import Engine
from fogline.amqp.login import EXTERNAL, Login
from fogline.amqp.outcome import ACCEPTED
from fogline.amqp.scheduler import Share
from fogline.amqp.security import ClientSecurity
from fogline.amqp.wire import decode, encode
from fogline.events.codec import Beacon, Range, encode_batch, encode_event
from fogline.events.event import Lane
from fogline.gateway import hello
from fogline.message import Message
from fogline.process.files.tls_files import client_context

BEACON = Beacon("5f3a0c1e-0000-4000-8000-000000000001", 123_456)
ASK_AGAIN_S = 0.2


def names(shards: int) -> list[str]:
    """A gateway for each shard."""
    return [
        next(name for name in (f"gw-{n}" for n in itertools.count()) if address.shard_of(name, shards) == shard)
        for shard in range(shards)
    ]


def batches(tenant: str, gateway: str, number: int, events: int) -> list[bytes]:
    """Everything that a gateway has, as AMQP messages."""
    made = list(map(encode_event, events_of(tenant, gateway, number, events)))
    found = []
    for first in range(1, events + 1, BATCH):
        last = min(first + BATCH - 1, events)
        span = Range(gateway, stream_of(number), Lane.TELEMETRY, first, last, last.to_bytes(16, "big"))
        found.append(encode(encode_batch(span, made[first - 1 : last], BEACON)))
    return found


class Gateway:
    """A handler of one connection."""

    def __init__(self, tenant: str, name: str, number: int, messages: list[bytes], security: ClientSecurity) -> None:
        self.welcome: hello.Welcome | None = None
        self._place = (tenant, name, number)
        self._messages = messages
        self._security = security
        self._answered = asyncio.Event()

    async def greet(self, port: int) -> None:
        """Connect and say hello until the shard is there, at the bridge that owns it; then attach the lane."""
        self.port = port
        tenant, name, number = self._place
        properties = {"tenant": tenant, "product": hello.PRODUCT}
        engine = Engine(name, hostname="127.0.0.1", properties=properties, security=self._security)
        self._opened = asyncio.Event()
        connection = await connect("127.0.0.1", port, engine, self)
        await self._opened.wait()
        session = connection.open_session()
        control = str(address.Control(tenant, name))
        connection.open_receiver(session, "control", control, credit=32)
        question = connection.open_sender(session, "hello", str(address.HelloAddress(tenant)), Share(strict=0), {})
        streams = [hello.OpenStream(stream_of(number), Lane.TELEMETRY)]
        body = hello.encode_hello(hello.Hello(protocol=1, version="0", gateway=name, beacon=BEACON, streams=streams))
        while self.welcome is None or self.welcome.refused:
            self._answered.clear()
            question.send(Message(body=body, content_type=hello.HELLO_CONTENT_TYPE, reply_to=control, correlation_id=1))
            await self._answered.wait()
            if self.welcome.redirect:
                connection.close()
                owner, self.welcome = int(self.welcome.redirect.rpartition(":")[2]), None
                await self.greet(owner)
                return
            if self.welcome.refused:
                await asyncio.sleep(ASK_AGAIN_S)
        target = str(address.IngestAddress(tenant, self.welcome.shard))
        self._lane = connection.open_sender(connection.open_session(), "telemetry", target, Share(), {"lane": "telemetry"})
        self._connection = connection

    def leave(self) -> None:
        """Close the connection."""
        self._connection.close()

    async def send(self) -> None:
        """Everything, until it is accepted."""
        outcomes = await asyncio.gather(*(self._lane.send_encoded(data) for data in self._messages))
        if any(outcome != ACCEPTED for outcome in outcomes):
            raise SystemExit(f"{self._place}: not all was accepted: {set(outcomes)}")

    def opened(self, _connection, _peer) -> None:
        """The bridge answered."""
        self._opened.set()

    def link_requested(self, *_) -> None:
        """The bridge opens no links."""

    def link_closed(self, _connection, link, condition) -> None:
        """Every link is needed."""
        raise SystemExit(f"{self._place}: link {link.name} was closed: {condition}")

    def received(self, connection: AmqpConnection, delivery, data) -> None:
        """The answer to hello."""
        connection.settle(delivery, ACCEPTED)
        connection.grant(delivery.link, 1)
        self.welcome = hello.decode_welcome(decode(data).body)
        self._answered.set()

    def closed(self, *_) -> None:
        """Do nothing: deliveries without an outcome fail by themselves."""


def security_of(folder: Path | None, name: str) -> ClientSecurity:
    """The certificate of a gateway; without a folder, plain text."""
    if folder is None:
        return ClientSecurity()
    return ClientSecurity(Login(EXTERNAL), client_context(files(folder, name), "uplink.tls"))


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("tenant")
    parser.add_argument("shards", type=int)
    parser.add_argument("events", type=int)
    parser.add_argument("certificates", type=Path, nargs="?")
    parser.add_argument("--bridges", type=int, default=1)
    return parser.parse_args()


async def welcomed(arguments: argparse.Namespace) -> list[Gateway]:
    """Greet until each bridge owns as many shards."""
    tenant, shards, folder = arguments.tenant, arguments.shards, arguments.certificates
    made = [batches(tenant, name, number, arguments.events // shards) for number, name in enumerate(names(shards))]
    while True:
        gateways = [
            Gateway(tenant, name, number, made[number], security_of(folder, name)) for number, name in enumerate(names(shards))
        ]
        await asyncio.gather(*(each.greet(arguments.port) for each in gateways))
        counts = Counter(each.port for each in gateways)
        if len(counts) == arguments.bridges and len(set(counts.values())) == 1:
            return gateways
        for each in gateways:
            each.leave()
        await asyncio.sleep(ASK_AGAIN_S)


async def main() -> None:
    """Greet, wait for the word, send."""
    gateways = await welcomed(parsed())
    print(json.dumps({"ready": len(gateways)}), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    began = time.perf_counter()
    await asyncio.gather(*(each.send() for each in gateways))
    print(json.dumps({"seconds": time.perf_counter() - began}), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
