"""One tenant with a bridge, gateways and a device of this process, on a real broker."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from fogline.amqp.backoff import Backoff
from fogline.command import Reply
from fogline.event import Lane, Receipt
from fogline.process.tls_files import TlsSettings
from fogline.signature import TrustedKeys
from fogline_cloud import topics
from fogline_cloud.bridge.bridge import Bridge
from fogline_cloud.committed_records import CommittedRecord, read_committed
from fogline_cloud.kafka import KafkaClients
from fogline_cloud.settings import CloudSettings
from fogline_edge.downlink.downlink import Downlink
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.settings import EdgeSettings, UplinkSettings
from fogline_edge.uplink.session import OnCommand
from fogline_edge.uplink.uplink import Uplink
from fogline_lab.amqp import within
from fogline_lab.events import make_arrival

LIMIT_S = 60.0
YES = Reply(200, b'{"ok":true}', "application/json")


async def until_not(condition: Callable[[], Awaitable[bool]], what: str, limit_s: float = LIMIT_S) -> None:
    """Ask again at every moment until it is no longer so."""

    async def gone():
        while await condition():  # noqa: ASYNC110 - the counts of another thread give no event
            await asyncio.sleep(0.01)

    await within(gone(), what, limit_s)


def no_commands(command, settle):
    raise AssertionError("nobody has sent a command")


@dataclass
class Line:
    """One tenant: a bridge on a port that stays, and the parts of one gateway."""

    tenant: str
    folder: Path
    cloud: CloudSettings
    port: int = 0
    bridges: list[str] | None = None
    uplink_tls: TlsSettings | None = None
    acknowledged: list[int] = field(default_factory=list)

    @asynccontextmanager
    async def bridge(self, name: str = "bridge-1"):
        bridge_settings = replace(self.cloud.bridge, name=name, listen=f"127.0.0.1:{self.port}", checkpoint_s=0.2)
        settings = replace(self.cloud, bridge=bridge_settings)
        bridge = Bridge(settings)
        _, self.port = await bridge.start()
        try:
            yield bridge
        finally:
            await bridge.close()

    def settings(self, gateway: str = "gw-1") -> EdgeSettings:
        bridge = self.bridges or f"127.0.0.1:{self.port}"
        uplink = UplinkSettings(bridge=bridge, batch_events=100, statement_s=0.5, tls=self.uplink_tls)
        return EdgeSettings(tenant=self.tenant, gateway=gateway, data=str(self.folder / gateway), uplink=uplink)

    @asynccontextmanager
    async def gateway(self, name: str = "gw-1", backoff: Backoff | None = None):
        outbox = Outbox.open(self.settings(name))
        async with self.uplink(outbox, backoff=backoff):
            yield outbox
        await outbox.close()

    @asynccontextmanager
    async def uplink(
        self,
        outbox: Outbox,
        on_command: OnCommand = no_commands,
        settings: UplinkSettings | None = None,
        backoff: Backoff | None = None,
    ):
        backoff = backoff or Backoff(base_s=0.05, cap_s=0.5)
        uplink = Uplink(outbox, settings or self.settings().uplink, on_command, backoff)
        task = asyncio.create_task(uplink.run())
        try:
            yield uplink
        finally:
            task.cancel()
            await asyncio.wait({task})

    async def put(self, outbox: Outbox, *numbers: int, **other) -> None:
        receipts = [asyncio.get_running_loop().create_future() for _ in numbers]
        for number, receipt in zip(numbers, receipts, strict=True):
            outbox.port.put(make_arrival(number, **other), receipt.set_result)
        assert set(await within(asyncio.gather(*receipts), "not acknowledged")) == {Receipt.STORED}
        self.acknowledged += numbers

    async def drained(self, outbox: Outbox) -> None:
        async def backlog() -> bool:
            return any(stream.head != stream.settled for stream in await outbox.streams.pending())

        await until_not(backlog, "the outbox does not drain")

    def records(self, *lanes: Lane) -> list[CommittedRecord]:
        names = {topics.of_lane(lane, self.tenant) for lane in lanes or (Lane.TELEMETRY,)}
        clients = KafkaClients(self.cloud.kafka)
        return list(read_committed(clients, {(name, shard): None for name in names for shard in range(2)}))

    def landed(self, *lanes: Lane) -> list[int]:
        import msgspec

        return [msgspec.json.decode(each.value)["n"] for each in self.records(*lanes) if each.value.startswith(b'{"n"')]


class Device:
    """A device that answers what it is told to do, and counts it. `answer=None`: it stays silent."""

    def __init__(self, commands, name="lamp-1", answer: Reply | None = YES):
        self.commands = commands
        self.name = name
        self.answer = answer
        self.ran: list[str] = []
        self.came = asyncio.Event()
        self.tell = "answer"

    def execute(self, command):
        self.ran.append(command.id)
        self.came.set()
        if self.tell == "lost":
            self.commands.lost(command.id)
        elif self.answer is not None:
            self.commands.answer(self.name, command.id, self.answer, lambda _: None)

    def abandon(self, command):
        pass


@asynccontextmanager
async def gateway(line, name="gw-1", keys: TrustedKeys | None = None):
    outbox = Outbox.open(line.settings(name))
    downlink = Downlink(outbox, keys or TrustedKeys())
    await downlink.start()
    try:
        async with line.uplink(outbox, downlink.received):
            yield outbox, downlink
    finally:
        downlink.close()
        await outbox.close()


@asynccontextmanager
async def serving(line):
    """A bridge that has its shards and has read the registry: it takes what comes."""
    async with line.bridge() as bridge:

        async def not_yet() -> bool:
            return not (bridge.shards.all_ready and bridge._devices.loaded)

        await until_not(not_yet, "the bridge does not get its shards")
        yield bridge


@asynccontextmanager
async def commandable(line):
    """A bridge, and a gateway whose device `lamp-1` has been heard of."""
    async with serving(line) as bridge, gateway(line) as (outbox, downlink):
        await line.put(outbox, 1)
        await line.drained(outbox)
        yield bridge, outbox, downlink
