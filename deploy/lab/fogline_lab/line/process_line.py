"""One tenant with bridges as child processes, gateways of this process under load, and a check of what landed."""

import asyncio
import itertools
import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fogline.address import shard_of
from fogline.amqp.backoff import Backoff
from fogline.events.event import Lane, Receipt
from fogline.process.cancellation import end_tasks
from fogline.process.files.tls_files import TlsSettings
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.kafka.committed_records import read_committed
from fogline_cloud.kafka.records import position_of
from fogline_cloud.settings import CloudSettings
from fogline_cloud.shard.checkpoint import read_entries
from fogline_cloud.shard.topic_admin import create_topics
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.settings import EdgeSettings, UplinkSettings
from fogline_edge.uplink.uplink import Uplink
from fogline_lab.amqp import within
from fogline_lab.events import make_arrival
from fogline_lab.gateway.connected_gateway import Impatient, no_commands, running_uplink
from fogline_lab.kafka_broker import free_port
from fogline_lab.supervisor import ChildProcess, find_script, kill_child
from fogline_lab.waiting import until

LIMIT_S = 60.0
"""Limit of each wait."""
GROUP = 20
"""Events that a gateway under load stores at once."""
_numbers = itertools.count(1)
Fact = tuple[str, int]
"""Gateway, and the number that its device counted."""


@dataclass
class ProcessLine:
    """A tenant of four shards. `acknowledged`: what gateways have acknowledged to their devices.

    `pace_s`: the pause of a gateway's device after each group of events.
    """

    tenant: str
    folder: Path
    bootstrap: str
    shards: int = 4
    replication: int = 1
    pace_s: float = 0.05
    acknowledged: set[Fact] = field(default_factory=set)
    outboxes: dict[str, Outbox] = field(default_factory=dict)
    bridges: dict[str, ChildProcess] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=dict)
    uplinks: dict[str, UplinkSettings] = field(default_factory=dict)
    _uplinks: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _loads: list[asyncio.Task[None]] = field(default_factory=list)
    loading: bool = True

    def __post_init__(self) -> None:
        self.use_kafka(self.bootstrap)

    def use_kafka(self, bootstrap: str) -> None:
        """Make the tenant's topics in this Kafka, which bridges use that are made from now on."""
        self.bootstrap = bootstrap
        self.cloud = CloudSettings(tenant=self.tenant, kafka={"bootstrap.servers": self.bootstrap}, shards=self.shards)
        self.clients = KafkaClients(self.cloud.kafka)
        create_topics(self.clients, self.cloud, self.replication)

    # --- bridges

    def bridge(self, name: str) -> ChildProcess:
        """Return the bridge process of this name, not started by this call. Its port stays the same."""
        port = self.ports.setdefault(name, free_port())
        config = self.folder / f"{name}.toml"
        config.write_text(
            f'tenant = "{self.tenant}"\nshards = {self.shards}\n'
            f'[kafka]\n"bootstrap.servers" = "{self.bootstrap}"\n'
            f'[bridge]\nname = "{name}"\nlisten = "127.0.0.1:{port}"\ncheckpoint_s = 0.5\n'
        )
        if name not in self.bridges:
            command = [find_script("fogline"), "bridge", "run", "--insecure-dev", "--config", config]
            self.bridges[name] = ChildProcess(name, command, self.folder / f"{name}.log")
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

        await until(even, f"the shards are not shared by {names}")
        return owners

    def owners(self) -> dict[int, str]:
        """Return the last committed owner of each shard."""
        topic = topics.checkpoint(self.tenant)
        found = read_committed(self.clients, {(topic, shard): None for shard in range(self.shards)})
        entries = [(each.partition, read_entries([(each.key, each.value)]).owner) for each in found]
        return {shard: owner.bridge for shard, owner in entries if owner is not None}

    # --- gateways

    def gateway_of(self, shard: int) -> str:
        """Return the name of a gateway that belongs to a shard."""
        return next(name for name in (f"gw-{n}" for n in range(1000)) if shard_of(name, self.shards) == shard)

    def open_gateway(
        self, name: str, *bridges: str, backoff: Backoff | None = None, idle_timeout_s: float = 15.0, **other: Any
    ) -> Outbox:
        """Open a gateway that is connected and under load until `drain`. `other`: settings of its uplink."""
        addresses = [f"127.0.0.1:{self.ports[each]}" for each in bridges]
        uplink = UplinkSettings(bridge=addresses, batch_events=100, idle_timeout_s=idle_timeout_s, **other)
        outbox = Outbox.open(EdgeSettings(tenant=self.tenant, gateway=name, data=str(self.folder / name), uplink=uplink))
        self.outboxes[name], self.uplinks[name] = outbox, uplink
        self.connect(name, uplink, backoff)
        self._loads.append(asyncio.create_task(_load(self, name, outbox), name=f"load-{name}"))
        return outbox

    def connect(self, name: str, uplink: UplinkSettings, backoff: Backoff | None = None) -> None:
        """Connect an open gateway."""
        serve = Uplink(self.outboxes[name], uplink, no_commands, backoff).run()
        self._uplinks[name] = asyncio.create_task(serve, name=f"uplink-{name}")

    async def disconnect(self, name: str) -> None:
        """Cut a gateway off. Its devices go on."""
        await end_tasks(self._uplinks.pop(name))

    async def time_a_gateway(self, bridge: str = "b-1", name: str = "", tls: TlsSettings | None = None) -> float:
        """Return the seconds that a gateway takes for its connection, hello and one event. By default it has a new name."""
        name = name or f"good-{next(_numbers)}"
        uplink, data = UplinkSettings(bridge=f"127.0.0.1:{self.ports[bridge]}", tls=tls), str(self.folder / name)
        outbox = Outbox.open(EdgeSettings(tenant=self.tenant, gateway=name, data=data, uplink=uplink))
        stored: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        outbox.port.put(make_arrival(1), stored.set_result)
        await within(stored, "not stored")
        began = asyncio.get_running_loop().time()

        async def drained() -> bool:
            return all(each.head == each.settled for each in await outbox.streams.pending())

        async with running_uplink(outbox, uplink, backoff=Impatient(base_s=0.05, cap_s=0.2)):
            await until(drained, "a good gateway is not served")
            took = asyncio.get_running_loop().time() - began
        await outbox.close()
        return took

    async def lands(self, gateway: str, what: str, limit_s: float = LIMIT_S) -> float:
        """Wait until the bridge has accepted something that is stored from now on; returns how long that took."""
        loop = asyncio.get_running_loop()
        began, outbox = loop.time(), self.outboxes[gateway]
        goal = max((stream.head for stream in await outbox.streams.pending()), default=0) + 1

        async def landed() -> bool:
            return max((stream.settled for stream in await outbox.streams.pending()), default=0) >= goal

        await until(landed, what, limit_s)
        return loop.time() - began

    async def drain(self) -> None:
        """End the load, and wait until the outboxes are empty."""
        self.loading = False
        await asyncio.gather(*self._loads)

        async def empty() -> bool:
            streams = [stream for each in self.outboxes.values() for stream in await each.streams.pending()]
            return all(stream.head == stream.settled for stream in streams)

        await until(empty, "the outboxes do not drain")

    async def close(self) -> None:
        """Close the gateways, and kill the bridges."""
        self.loading = False
        ended = await asyncio.gather(*self._loads, return_exceptions=True)
        uplinks = self._uplinks.values()
        for task in uplinks:
            task.cancel()
        ended += await asyncio.gather(*uplinks, return_exceptions=True)
        for outbox in self.outboxes.values():
            await outbox.close()
        for program in self.bridges.values():
            await kill_child(program)
        assert [each for each in ended if isinstance(each, Exception)] == []

    # --- the oracle

    async def check(self) -> int:
        """Check that each acknowledged event landed once, and no other. Returns the number of events."""
        landed = Counter(await asyncio.to_thread(self.landed))
        assert self.acknowledged - set(landed) == set(), "lost"
        assert set(landed) - self.acknowledged == set(), "phantoms"
        assert [fact for fact, times in landed.items() if times > 1] == [], "duplicates"
        return len(landed)

    def landed(self) -> list[Fact]:
        """Return each event as often as a `read_committed` consumer sees it."""
        topic = topics.of_lane(Lane.TELEMETRY, self.tenant)
        facts = []
        for stored in read_committed(self.clients, {(topic, shard): None for shard in range(self.shards)}):
            place = position_of(stored.headers, stored.value)
            if place is not None and stored.value.startswith(b'{"n"'):
                facts.append((place.gateway, int(json.loads(stored.value)["n"])))
        return facts


async def _load(line: ProcessLine, name: str, outbox: Outbox) -> None:
    """Store events until `drain`."""
    first, loop = 1, asyncio.get_running_loop()
    while line.loading:
        receipts: dict[int, asyncio.Future[Receipt]] = {n: loop.create_future() for n in range(first, first + GROUP)}
        for number, receipt in receipts.items():
            outbox.port.put(make_arrival(number), receipt.set_result)
        assert set(await asyncio.gather(*receipts.values())) == {Receipt.STORED}
        line.acknowledged |= {(name, number) for number in receipts}
        first += GROUP
        await asyncio.sleep(line.pace_s)  # the device's own pace
