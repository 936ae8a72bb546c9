"""One tenant with a bridge and gateways in this process, on a real Kafka broker."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from msgspec.structs import replace

from fogline.amqp.backoff import Backoff
from fogline.commands.signature import TrustedKeys
from fogline.events.event import Lane, Receipt
from fogline.process.files.tls_files import TlsSettings
from fogline.process.files.via_settings import ViaSettings
from fogline_cloud.bridge.bridge import Bridge
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.kafka.committed_records import CommittedRecord, read_committed
from fogline_cloud.settings import CloudSettings
from fogline_edge.downlink.downlink import Downlink
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.settings import EdgeSettings, UplinkSettings
from fogline_edge.uplink.session import OnCommand
from fogline_edge.uplink.uplink import Uplink
from fogline_lab.amqp import within
from fogline_lab.events import make_arrival
from fogline_lab.gateway.connected_gateway import connected_gateway, running_uplink
from fogline_lab.waiting import until, until_not


@dataclass
class Line:
    """One tenant: a bridge on a port that stays, and the parts of one gateway.

    `bridges`: the addresses that gateways connect to, or None for the bridge on `port`. `acknowledged`: the numbers of all
    events that `put` has stored.
    """

    tenant: str
    folder: Path
    cloud: CloudSettings
    port: int = 0
    bridges: list[str] | None = None
    uplink_tls: TlsSettings | None = None
    uplink_via: ViaSettings | None = None
    acknowledged: list[int] = field(default_factory=list)

    @asynccontextmanager
    async def bridge(self, name: str = "bridge-1") -> AsyncIterator[Bridge]:
        """Run a bridge, for the length of a block."""
        bridge_settings = replace(self.cloud.bridge, name=name, listen=f"127.0.0.1:{self.port}", checkpoint_s=0.2)
        settings = replace(self.cloud, bridge=bridge_settings)
        bridge = Bridge(settings)
        _, self.port = await bridge.start()
        try:
            yield bridge
        finally:
            await bridge.close()

    def settings(self, gateway: str = "gw-1") -> EdgeSettings:
        """Return the settings of a gateway."""
        bridge = self.bridges or f"127.0.0.1:{self.port}"
        uplink = UplinkSettings(bridge=bridge, batch_events=100, statement_s=0.5, tls=self.uplink_tls, via=self.uplink_via)
        return EdgeSettings(tenant=self.tenant, gateway=gateway, data=str(self.folder / gateway), uplink=uplink)

    @asynccontextmanager
    async def gateway(self, name: str = "gw-1", backoff: Backoff | None = None) -> AsyncIterator[Outbox]:
        """Run a gateway that gets no commands, for the length of a block."""
        outbox = Outbox.open(self.settings(name))
        async with self.uplink(outbox, backoff=backoff):
            yield outbox
        await outbox.close()

    def uplink(
        self,
        outbox: Outbox,
        on_command: OnCommand | None = None,
        settings: UplinkSettings | None = None,
        backoff: Backoff | None = None,
    ) -> AbstractAsyncContextManager[Uplink]:
        """Keep an outbox connected to the bridge, for the length of a block."""
        return running_uplink(outbox, settings or self.settings().uplink, on_command, backoff)

    async def put(self, outbox: Outbox, *numbers: int, **other: object) -> None:
        """Store an event with each of these numbers, and wait until all are acknowledged."""
        loop = asyncio.get_running_loop()
        receipts: list[asyncio.Future[Receipt]] = [loop.create_future() for _ in numbers]
        for number, receipt in zip(numbers, receipts, strict=True):
            outbox.port.put(make_arrival(number, **other), receipt.set_result)  # type: ignore[arg-type]
        assert set(await within(asyncio.gather(*receipts), "not acknowledged")) == {Receipt.STORED}
        self.acknowledged += numbers

    async def drained(self, outbox: Outbox) -> None:
        """Wait until the bridge has settled all events of an outbox."""

        async def backlog() -> bool:
            return any(stream.head != stream.settled for stream in await outbox.streams.pending())

        await until_not(backlog, "the outbox does not drain")

    def records(self, *lanes: Lane) -> list[CommittedRecord]:
        """Return the committed records of these lanes, by default of telemetry."""
        names = {topics.of_lane(lane, self.tenant) for lane in lanes or (Lane.TELEMETRY,)}
        clients = KafkaClients(self.cloud.kafka)
        return list(read_committed(clients, {(name, shard): None for name in names for shard in range(2)}))

    def landed(self, *lanes: Lane) -> list[int]:
        """Return the numbers of the committed events of these lanes, by default of telemetry."""
        return [msgspec.json.decode(each.value)["n"] for each in self.records(*lanes) if each.value.startswith(b'{"n"')]


def gateway(
    line: Line, name: str = "gw-1", keys: TrustedKeys | None = None
) -> AbstractAsyncContextManager[tuple[Outbox, Downlink]]:
    """Run a gateway that takes commands, for the length of a block."""
    return connected_gateway(line.settings(name), keys)


@asynccontextmanager
async def serving(line: Line) -> AsyncIterator[Bridge]:
    """Run a bridge that owns its shards and has read the registry."""
    async with line.bridge() as bridge:

        def is_ready() -> bool:
            return bridge.shards.all_ready and bridge._devices.loaded  # noqa: SLF001 - no interface tells it

        await until(is_ready, "the bridge does not get its shards")
        yield bridge


@asynccontextmanager
async def commandable(line: Line) -> AsyncIterator[tuple[Bridge, Outbox, Downlink]]:
    """Run a bridge, and a gateway that has sent an event of its device `lamp-1`."""
    async with serving(line) as bridge, gateway(line) as (outbox, downlink):
        await line.put(outbox, 1)
        await line.drained(outbox)
        yield bridge, outbox, downlink
