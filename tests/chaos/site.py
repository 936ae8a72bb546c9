"""One tenant with bridges that are real processes, gateways of this process under load, and what landed of it."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fogline.address import shard_of
from fogline.amqp.reconnect import Backoff
from fogline.crash import VARIABLE
from fogline.event import Lane, Receipt
from fogline.testing.amqp import within
from fogline.testing.events import make_arrival
from fogline.testing.kafka_broker import free_port
from fogline_cloud import topics
from fogline_cloud.bridge.checkpoint import read_entries
from fogline_cloud.kafka import KafkaClients
from fogline_cloud.provision import create_topics
from fogline_cloud.reading import read_committed
from fogline_cloud.records import place_of
from fogline_cloud.settings import Settings as CloudSettings
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.settings import Settings, UplinkSettings
from fogline_edge.uplink.uplink import Uplink

LIMIT_S = 60.0
GROUP = 20
"""Events that a gateway under load stores at once."""
Fact = tuple[str, int]
"""Gateway, and the number that its device counted."""


async def until(condition: Callable[[], bool], what: str, limit_s: float = LIMIT_S) -> None:
    """Look again and again until it is so: other processes and threads give no event here."""

    async def so() -> None:
        while not condition():  # noqa: ASYNC110 - as said
            await asyncio.sleep(0.01)

    await within(so(), what, limit_s)


async def until_async(condition: Callable[[], Awaitable[bool]], what: str, limit_s: float = LIMIT_S) -> None:
    """The same for a condition that has to be awaited."""

    async def so() -> None:
        while not await condition():  # noqa: ASYNC110 - as said
            await asyncio.sleep(0.02)

    await within(so(), what, limit_s)


class Program:
    """A child process of this test: `start` returns its first JSON line; nothing of it outlives `end`."""

    def __init__(self, command: list[str], log: Path, **environment: str) -> None:
        self.log = log
        self._command = command
        self._environment = {**os.environ, **environment}
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, limit_s: float = LIMIT_S) -> dict[str, Any]:
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command, stdout=asyncio.subprocess.PIPE, stderr=log, env=self._environment, start_new_session=True
            )
        return await self.says(limit_s)

    async def says(self, limit_s: float = LIMIT_S) -> dict[str, Any]:
        """Its next line."""
        line = await within(self._process.stdout.readline(), f"{self._command} says nothing", limit_s)
        assert line, f"it ended: {self.log.read_text('utf-8', 'replace')[-2000:]}"
        return json.loads(line)

    def send(self, what: signal.Signals) -> None:
        """To it and to all that it has started."""
        os.killpg(self._process.pid, what)

    async def ended(self) -> int:
        return await within(self._process.wait(), f"{self._command} does not end")

    async def end(self, how: signal.Signals = signal.SIGKILL) -> None:
        """End it, if that has not happened, and wait for that."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.send(signal.SIGCONT)
                self.send(how)
            await self.ended()


@dataclass
class Site:
    """A tenant of four shards. `acknowledged`: what gateways have acknowledged to their devices."""

    tenant: str
    folder: Path
    bootstrap: str
    shards: int = 4
    acknowledged: set[Fact] = field(default_factory=set)
    outboxes: dict[str, Outbox] = field(default_factory=dict)
    bridges: dict[str, Program] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=dict)
    _uplinks: list[asyncio.Task[None]] = field(default_factory=list)
    _loads: list[asyncio.Task[None]] = field(default_factory=list)
    _loading: bool = True

    def __post_init__(self) -> None:
        self.cloud = CloudSettings(tenant=self.tenant, kafka={"bootstrap.servers": self.bootstrap}, shards=self.shards)
        self.clients = KafkaClients(self.cloud.kafka)
        create_topics(self.clients, self.cloud, 1)

    # --- bridges

    def bridge(self, name: str, crash_at: str = "") -> Program:
        """A bridge that is still to be started, and may kill itself at a point; its port stays the same."""
        port = self.ports.setdefault(name, free_port())
        config = self.folder / f"{name}.toml"
        config.write_text(
            f'tenant = "{self.tenant}"\nshards = {self.shards}\n'
            f'[kafka]\n"bootstrap.servers" = "{self.bootstrap}"\n'
            f'[bridge]\nname = "{name}"\nlisten = "127.0.0.1:{port}"\ncheckpoint_s = 0.5\n'
        )
        command = [str(Path(sys.executable).with_name("fogline")), "bridge", "run", "--config", str(config)]
        self.bridges[name] = Program(command, self.folder / f"{name}.log", **{VARIABLE: crash_at})
        return self.bridges[name]

    async def shared(self, *names: str) -> dict[int, str]:
        """Wait until the shards are shared by exactly these bridges, evenly; returns who has which."""
        owners: dict[int, str] = {}

        async def even() -> bool:
            owners.update(await asyncio.to_thread(self.owners))
            counts = Counter(owners.values())
            return (
                len(owners) == self.shards and set(counts) == set(names) and min(counts.values()) >= self.shards // len(names)
            )

        await until_async(even, f"the shards are not shared by {names}")
        return owners

    def owners(self) -> dict[int, str]:
        """Who took each shard last, as was committed."""
        topic = topics.checkpoint(self.tenant)
        found = read_committed(self.clients, {(topic, shard): None for shard in range(self.shards)})
        entries = [(each.partition, read_entries([(each.key, each.value)]).owner) for each in found]
        return {shard: owner.bridge for shard, owner in entries if owner is not None}

    # --- gateways

    def gateway_of(self, shard: int) -> str:
        """The name of a gateway whose shard it is."""
        return next(name for name in (f"gw-{n}" for n in range(1000)) if shard_of(name, self.shards) == shard)

    def open_gateway(self, name: str, *bridges: str, backoff: Backoff | None = None) -> Outbox:
        """A gateway that is connected and under load until `drain`."""
        uplink = UplinkSettings(bridge=[f"127.0.0.1:{self.ports[each]}" for each in bridges], batch_events=100)
        outbox = Outbox.open(Settings(tenant=self.tenant, gateway=name, data=str(self.folder / name), uplink=uplink))
        self.outboxes[name] = outbox
        serve = Uplink(outbox, uplink, _no_commands, backoff).run()
        self._uplinks.append(asyncio.create_task(serve, name=f"uplink-{name}"))
        self._loads.append(asyncio.create_task(self._load(name, outbox), name=f"load-{name}"))
        return outbox

    async def _load(self, name: str, outbox: Outbox) -> None:
        """A device that sends as long as it may, a few hundred events a second."""
        first = 1
        while self._loading:
            receipts = {n: asyncio.get_running_loop().create_future() for n in range(first, first + GROUP)}
            for number, receipt in receipts.items():
                outbox.put(make_arrival(number), receipt.set_result)
            assert set(await asyncio.gather(*receipts.values())) == {Receipt.STORED}
            self.acknowledged |= {(name, number) for number in receipts}
            first += GROUP
            await asyncio.sleep(0.05)  # the device's own pace

    async def lands(self, gateway: str, what: str, limit_s: float = LIMIT_S) -> float:
        """Wait until the bridge has accepted something that is stored from now on; returns how long that took."""
        loop = asyncio.get_running_loop()
        began, outbox = loop.time(), self.outboxes[gateway]
        goal = max((stream.head for stream in await outbox.streams()), default=0) + 1

        async def landed() -> bool:
            return max((stream.settled for stream in await outbox.streams()), default=0) >= goal

        await until_async(landed, what, limit_s)
        return loop.time() - began

    async def drain(self) -> None:
        """End the load, and wait until the outboxes are empty."""
        self._loading = False
        await asyncio.gather(*self._loads)

        async def empty() -> bool:
            streams = [stream for each in self.outboxes.values() for stream in await each.streams()]
            return all(stream.head == stream.settled for stream in streams)

        await until_async(empty, "the outboxes do not drain")

    async def close(self) -> None:
        self._loading = False
        ended = await asyncio.gather(*self._loads, return_exceptions=True)
        for task in self._uplinks:
            task.cancel()
        ended += await asyncio.gather(*self._uplinks, return_exceptions=True)
        for outbox in self.outboxes.values():
            await outbox.close()
        for program in self.bridges.values():
            await program.end()
        assert [each for each in ended if isinstance(each, Exception)] == []

    # --- the oracle

    async def check(self) -> int:
        """What was acknowledged is what landed, each once. Returns how many events."""
        landed = Counter(await asyncio.to_thread(self.landed))
        assert self.acknowledged - set(landed) == set(), "lost"
        assert set(landed) - self.acknowledged == set(), "phantoms"
        assert [fact for fact, times in landed.items() if times > 1] == [], "duplicates"
        return len(landed)

    def landed(self) -> list[Fact]:
        """Every event that a reader of committed records sees, as often as it sees it."""
        topic = topics.of_lane(Lane.TELEMETRY, self.tenant)
        facts = []
        for stored in read_committed(self.clients, {(topic, shard): None for shard in range(self.shards)}):
            place = place_of(stored.headers, stored.value)
            if place is not None and stored.value.startswith(b'{"n"'):
                facts.append((place.gateway, int(json.loads(stored.value)["n"])))
        return facts


def _no_commands(command: object, settle: object) -> None:
    raise AssertionError("nobody has sent a command")
