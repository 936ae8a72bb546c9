"""Many gateways over TLS: each says hello and lands one event. Some stay connected, and come back when the line is cut.

    python tests/bench/crowd_load.py TENANT CERTIFICATES GATEWAYS CONNECTED PORT OTHER_PORT

Prints a JSON line when all have landed their event and those that stay are connected. When each of these has lost its
connection and is served again, by whichever bridge, it prints when that was so for the first one of each shard, and for the
last one, on CLOCK_MONOTONIC.
"""

import asyncio
import json
import ssl
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

from gateways import BEACON
from records import events_of, stream_of

from fogline import address
from fogline.amqp.backoff import Backoff
from fogline.amqp.driver import AmqpConnection, connect
from fogline.amqp.engine import Engine
from fogline.amqp.login import EXTERNAL, Login
from fogline.amqp.outcome import ACCEPTED
from fogline.amqp.scheduler import Share
from fogline.amqp.security import ClientSecurity
from fogline.amqp.wire import decode, encode
from fogline.errors import FoglineError, Unreachable
from fogline.events.codec import Range, encode_batch, encode_event
from fogline.events.event import Lane
from fogline.gateway import hello
from fogline.message import Message
from fogline_cloud.authority.ca_folder import ROOT, CaFolder
from fogline_cloud.authority.certificates import Role, Subject, key_pem, make_key, pem

AT_ONCE = 64
"""Gateways that connect at the same time while the state is made."""
POLL_S = 0.05
SHARDS = 8
HERE = "127.0.0.1"


class CrowdGateway:
    """One gateway. `ports`: of the bridges, which it tries in turn."""

    def __init__(self, tenant: str, number: int, ports: Sequence[int], contexts: "Contexts") -> None:
        self.name = f"gw-{number:05}"
        self.shard = address.shard_of(self.name, SHARDS)
        self.served = False
        self.served_s = 0.0  # when it was last welcomed
        self.lost = 0
        self._tenant, self._number, self._ports, self._contexts = tenant, number, ports, contexts
        self._backoff = Backoff()
        self._over = asyncio.Event()
        self._opened = asyncio.Event()
        self._answered = asyncio.Event()
        self._welcome: hello.Welcome | None = None

    async def stay(self) -> None:
        """Stay connected, for ever."""
        while True:
            connection = await self._welcomed()
            self.served, self.served_s = True, time.monotonic()
            self._backoff.stable()
            await self._over.wait()
            connection.abort()
            self.served = False
            self.lost += 1

    async def pass_by(self) -> None:
        """Connect, land one event, and leave."""
        connection = await self._welcomed()
        assert self._welcome is not None
        target = str(address.IngestAddress(self._tenant, self._welcome.shard))
        lane = connection.open_sender(connection.open_session(), "telemetry", target, Share(), {"lane": "telemetry"})
        event = encode_event(events_of(self._tenant, self.name, self._number, 1)[0])
        span = Range(self.name, stream_of(self._number), Lane.TELEMETRY, 1, 1, bytes(16))
        outcome = await lane.send_encoded(encode(encode_batch(span, [event], BEACON)))
        if outcome != ACCEPTED:
            raise SystemExit(f"{self.name}: {outcome}")
        connection.close()
        await self._over.wait()
        connection.abort()

    async def _welcomed(self) -> AmqpConnection:
        """Try the bridges as a gateway does, until one says welcome."""
        turn = 0
        port = self._ports[0]
        while True:
            try:
                connection = await self._greet(port)
            except (FoglineError, OSError):
                turn += 1
                port = self._ports[turn % len(self._ports)]
                await asyncio.sleep(self._backoff.next_s())
                continue
            welcome = self._welcome
            if welcome is not None and not welcome.refused:
                return connection
            connection.abort()
            if welcome is not None and welcome.redirect:
                port = int(welcome.redirect.rpartition(":")[2])
            await asyncio.sleep(self._backoff.requested_s(1.0 if welcome is None else welcome.retry_after_s))

    async def _greet(self, port: int) -> AmqpConnection:
        """Connect, and return the connection with the answer to hello, which may be none."""
        self._welcome = None
        for each in (self._over, self._opened, self._answered):
            each.clear()
        security = ClientSecurity(Login(EXTERNAL), self._contexts.of(self.name))
        engine = Engine(
            self.name, hostname=HERE, properties={"tenant": self._tenant, "product": hello.PRODUCT}, security=security
        )
        connection = await connect(HERE, port, engine, self)
        await self._opened.wait()
        if self._over.is_set():
            raise Unreachable("the connection ended")
        session = connection.open_session()
        control = str(address.Control(self._tenant, self.name))
        connection.open_receiver(session, "control", control, credit=32)
        question = connection.open_sender(session, "hello", str(address.HelloAddress(self._tenant)), Share(strict=0), {})
        streams = [hello.OpenStream(stream_of(self._number), lane) for lane in (Lane.TELEMETRY,)]
        body = hello.encode_hello(hello.Hello(protocol=1, version="0", gateway=self.name, beacon=BEACON, streams=streams))
        sent = question.send(Message(body=body, content_type=hello.HELLO_CONTENT_TYPE, reply_to=control, correlation_id=1))
        sent.add_done_callback(lambda future: future.cancelled() or future.exception())
        await self._answered.wait()
        return connection

    # --- handler of the connection

    def opened(self, *_) -> None:
        """Note that the bridge has answered."""
        self._opened.set()

    def link_requested(self, *_) -> None:
        """Do nothing: the bridge opens no links."""

    def link_closed(self, connection: AmqpConnection, *_) -> None:
        """End the connection: every link is needed."""
        connection.abort()

    def received(self, connection: AmqpConnection, delivery, data) -> None:
        """Take the answer to hello."""
        connection.settle(delivery, ACCEPTED, credit=1)
        self._welcome = hello.decode_welcome(decode(data).body)
        self._answered.set()

    def closed(self, *_) -> None:
        """Wake whoever waits."""
        for each in (self._over, self._opened, self._answered):
            each.set()


class Contexts:
    """TLS contexts of gateways: one key for all of them, and a certificate for each name."""

    def __init__(self, folder: Path, tenant: str) -> None:
        self._ca = CaFolder.open(folder)
        self._root, self._tenant, self._key = folder / ROOT, tenant, make_key()
        self._file = folder / "of-a-gateway.pem"

    @lru_cache(maxsize=2048)  # noqa: B019 - there is one of it; those that stay come back, ten thousand would fill the memory
    def of(self, gateway: str) -> ssl.SSLContext:
        """Return the context of a gateway."""
        subject = Subject(self._tenant, Role.GATEWAY, gateway, [])
        made = self._ca.authority.issue(subject, self._key.public_key(), datetime.now(UTC), 1)
        self._file.write_bytes(pem(made) + key_pem(self._key))
        context = ssl.create_default_context(cafile=self._root)
        context.check_hostname = False
        context.load_cert_chain(self._file)
        return context


def say(**line: object) -> None:
    """Print a line."""
    print(json.dumps(line), flush=True)


async def until_served(staying: list[CrowdGateway], lost: int) -> None:
    """Wait until each has lost its connection so often, and is served."""
    while any(each.lost < lost or not each.served for each in staying):  # noqa: ASYNC110 - a thousand conditions
        await asyncio.sleep(POLL_S)


async def main(tenant: str, folder: Path, gateways: int, connected: int, *ports: int) -> None:
    """Make the state, stay connected, and tell when all are served again."""
    contexts, began = Contexts(folder, tenant), time.monotonic()
    passing: Iterator[CrowdGateway] = (CrowdGateway(tenant, number, ports[:1], contexts) for number in range(gateways))

    async def work() -> None:
        for each in passing:
            await each.pass_by()

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    seconds = time.monotonic() - began
    staying = [CrowdGateway(tenant, number, ports, contexts) for number in range(connected)]
    tasks = [asyncio.create_task(each.stay()) for each in staying]
    await until_served(staying, 0)
    say(seconds=seconds)
    await until_served(staying, 1)
    first = [min(each.served_s for each in staying if each.shard == shard) for shard in range(SHARDS)]
    say(shards_s=max(first), last_s=max(each.served_s for each in staying))
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), *map(int, sys.argv[3:])))
