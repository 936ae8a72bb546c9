"""Gateways and two bridges that both connect out to a router or a broker, which fails while events flow."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from msgspec.structs import replace

from fogline.address import shard_of
from fogline.amqp.backoff import Backoff
from fogline.process.files.via_settings import ViaKind, ViaSettings
from fogline_cloud.authority.certificates import Role
from fogline_cloud.bridge.bridge import Bridge
from fogline_edge.downlink.downlink import Downlink
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.uplink.uplink import Uplink
from fogline_lab.credentials.authority_folder import AuthorityFolder
from fogline_lab.events import make_noise
from fogline_lab.gateway.connected_gateway import opened_gateway, running_uplink
from fogline_lab.line.line import Line
from fogline_lab.line.secure_line import secure
from fogline_lab.waiting import until

GROUP = 100
"""Events that a gateway stores at once."""
GATEWAYS = ("gw-1", "gw-2", "gw-4")
LIMIT_S = 300.0
"""Limit of a drain: a message that was lost is noticed after 60 s."""

Fault = Callable[[], Awaitable[object]]


@dataclass
class ViaGateway:
    """One gateway of the world."""

    outbox: Outbox
    downlink: Downlink
    uplink: Uplink


@dataclass
class ViaWorld:
    """One tenant of two shards. `gateways`, `bridges`: those that run, by name."""

    line: Line
    site: AuthorityFolder
    gateways: dict[str, ViaGateway] = field(default_factory=dict)
    bridges: dict[str, Bridge] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=dict)
    _stacks: dict[str, AsyncExitStack] = field(default_factory=dict)

    async def start_bridge(self, name: str) -> None:
        """Start a bridge."""
        own = replace(
            self.line.cloud.bridge,
            name=name,
            listen=f"127.0.0.1:{self.ports.get(name, 0)}",
            checkpoint_s=0.2,
            tls=self.site.files(Role.BRIDGE, name),
        )
        bridge = self.bridges[name] = Bridge(replace(self.line.cloud, bridge=own))
        _, self.ports[name] = await bridge.start()

    async def stop_bridge(self, name: str) -> None:
        """Stop a bridge in order: the other one takes its shards over."""
        await self.bridges.pop(name).close()

    async def restart_a_bridge(self) -> None:
        """Stop a bridge, wait until the other one has its shards, and start it again."""
        await self.stop_bridge("bridge-2")
        await until(lambda: self.bridges["bridge-1"].shards.all_ready, "the other bridge does not take over")
        await self.start_bridge("bridge-2")

    async def start_gateway(self, name: str, folder: str = "") -> None:
        """Start a gateway. `folder`: of its data, by default of its name."""
        settings = self.line.settings(name)
        uplink = replace(settings.uplink, tls=self.site.files(Role.GATEWAY, name), idle_timeout_s=2.0)
        settings = replace(settings, uplink=uplink, data=str(self.line.folder / (folder or name)))
        stack = self._stacks[folder or name] = AsyncExitStack()
        opened = await stack.enter_async_context(opened_gateway(settings))
        running = running_uplink(opened.outbox, uplink, opened.downlink.received, Backoff(0.05, 0.5))
        self.gateways[folder or name] = ViaGateway(opened.outbox, opened.downlink, await stack.enter_async_context(running))

    async def stop_gateway(self, name: str) -> None:
        """Stop a gateway, by the name of its folder."""
        del self.gateways[name]
        await self._stacks.pop(name).aclose()

    async def close(self) -> None:
        """Stop everything."""
        for name in list(self.gateways):
            await self.stop_gateway(name)
        for name in list(self.bridges):
            await self.stop_bridge(name)

    async def load(self, total: int, faults: Sequence[Fault] = (), *, first: int = 0, noise_bytes: int = 0) -> None:
        """Have the gateways store events, with each fault after the same number of them, one fault after the other.

        `first`: the number of the first event. `noise_bytes`: what each event has beside its number.
        """
        pending, due = list(faults), total // (len(faults) + 1) or total
        running: asyncio.Task[object] | None = None
        outboxes = [each.outbox for each in self.gateways.values()]
        try:
            for begin in range(0, total, GROUP):
                if pending and begin >= due * (len(faults) - len(pending) + 1) and (running is None or running.done()):
                    if running is not None:
                        running.result()
                    running = asyncio.create_task(_run(pending.pop(0)), name="fault")
                numbers = range(first + begin, first + min(begin + GROUP, total))
                await self._put(outboxes[begin // GROUP % len(outboxes)], numbers, noise_bytes)
            if running is not None:
                await running
            for each in pending:
                await each()
        finally:
            if running is not None:
                running.cancel()
                await asyncio.wait({running})

    async def _put(self, outbox: Outbox, numbers: range, noise_bytes: int) -> None:
        if not noise_bytes:
            await self.line.put(outbox, *numbers)
            return
        bodies = {n: b'{"n": %d, "more": "%s"}' % (n, make_noise(noise_bytes, n)) for n in numbers}
        await asyncio.gather(*(self.line.put(outbox, n, data=body) for n, body in bodies.items()))

    async def drained(self) -> None:
        """Wait until the bridges have settled all events."""

        async def empty() -> bool:
            streams = [stream for each in self.gateways.values() for stream in await each.outbox.streams.pending()]
            return all(stream.head == stream.settled for stream in streams)

        await until(empty, "the outboxes do not drain", LIMIT_S, pause_s=0.1)

    async def check(self) -> None:
        """Check that each acknowledged event landed once, and no other one."""
        landed = Counter(await asyncio.to_thread(self.line.landed))
        acknowledged = set(self.line.acknowledged)
        assert acknowledged - set(landed) == set(), "lost"
        assert set(landed) - acknowledged == set(), "made up"
        assert [number for number, times in landed.items() if times > 1] == [], "double"


async def _run(fault: Fault) -> None:
    await fault()


@asynccontextmanager
async def via_world(
    line: Line, gateways_port: int, kind: ViaKind, *, bridges_port: int = 0, gateways: Sequence[str] = GATEWAYS
) -> AsyncIterator[ViaWorld]:
    """Run two bridges and gateways on both shards. `bridges_port`: that of the router for bridges, by default the same."""
    line, site = secure(line)
    line.uplink_via = ViaSettings(url=f"amqp://127.0.0.1:{gateways_port}", kind=kind)
    bridges_via = ViaSettings(url=f"amqp://127.0.0.1:{bridges_port or gateways_port}", kind=kind)
    line.cloud = replace(line.cloud, bridge=replace(line.cloud.bridge, via=[bridges_via]))
    assert len(gateways) == 1 or {shard_of(each, 2) for each in gateways} == {0, 1}
    world = ViaWorld(line, site)
    try:
        for name in ("bridge-1", "bridge-2"):
            await world.start_bridge(name)
        line.port = world.ports["bridge-1"]
        for name in gateways:
            await world.start_gateway(name)
        yield world
    finally:
        await world.close()
