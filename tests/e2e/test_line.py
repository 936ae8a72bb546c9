"""Outbox, uplink, bridge and a real broker: everything that was acknowledged lands once."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fogline.amqp.reconnect import Backoff
from fogline.event import Lane, Receipt
from fogline.gap import GAP_CONTENT_TYPE, decode_gap
from fogline.testing.amqp import within
from fogline.testing.events import make_arrival
from fogline_cloud import topics
from fogline_cloud.bridge.bridge import Bridge
from fogline_cloud.kafka import KafkaClients
from fogline_cloud.ledger.balance import judge
from fogline_cloud.ledger.sources import gather
from fogline_cloud.provision import create_topics
from fogline_cloud.reading import Stored, read_committed
from fogline_cloud.records import place_of
from fogline_cloud.settings import BridgeSettings, FlowSettings
from fogline_cloud.settings import Settings as CloudSettings
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.settings import Settings, UplinkSettings
from fogline_edge.uplink.uplink import Uplink

LIMIT_S = 60.0


async def until_not(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    """Ask again at every moment until it is no longer so."""

    async def gone():
        while await condition():  # noqa: ASYNC110 - the counts of another thread give no event
            await asyncio.sleep(0.01)

    await within(gone(), what, LIMIT_S)


@dataclass
class Line:
    """One tenant: a bridge on a port that stays, and the parts of one gateway."""

    tenant: str
    folder: Path
    cloud: CloudSettings
    port: int = 0
    acknowledged: list[int] = field(default_factory=list)

    @asynccontextmanager
    async def bridge(self, name: str = "bridge-1"):
        settings = CloudSettings(
            tenant=self.tenant,
            kafka=self.cloud.kafka,
            shards=2,
            bridge=BridgeSettings(name=name, listen=f"127.0.0.1:{self.port}", checkpoint_s=0.2),
        )
        bridge = Bridge(settings)
        _, self.port = await bridge.start()
        try:
            yield bridge
        finally:
            await bridge.close()

    def settings(self, gateway: str = "gw-1") -> Settings:
        uplink = UplinkSettings(bridge=f"127.0.0.1:{self.port}", batch_events=100, statement_s=0.5)
        return Settings(tenant=self.tenant, gateway=gateway, data=str(self.folder / gateway), uplink=uplink)

    @asynccontextmanager
    async def gateway(self, name: str = "gw-1"):
        outbox = Outbox.open(self.settings(name))
        async with self.uplink(outbox):
            yield outbox
        await outbox.close()

    @asynccontextmanager
    async def uplink(self, outbox: Outbox):
        uplink = Uplink(outbox, self.settings().uplink, Backoff(base_s=0.05, cap_s=0.5))
        task = asyncio.create_task(uplink.run())
        try:
            yield uplink
        finally:
            task.cancel()
            await asyncio.wait({task})

    async def put(self, outbox: Outbox, *numbers: int, **other) -> None:
        receipts = [asyncio.get_running_loop().create_future() for _ in numbers]
        for number, receipt in zip(numbers, receipts, strict=True):
            outbox.put(make_arrival(number, **other), receipt.set_result)
        assert set(await within(asyncio.gather(*receipts), "not acknowledged")) == {Receipt.STORED}
        self.acknowledged += numbers

    async def drained(self, outbox: Outbox) -> None:
        async def backlog() -> bool:
            return any(stream.head != stream.settled for stream in await outbox.streams())

        await until_not(backlog, "the outbox does not drain")

    def records(self, *lanes: Lane) -> list[Stored]:
        names = {topics.of_lane(lane, self.tenant) for lane in lanes or (Lane.TELEMETRY,)}
        clients = KafkaClients(self.cloud.kafka)
        return list(read_committed(clients, {(name, shard): None for name in names for shard in range(2)}))

    def landed(self, *lanes: Lane) -> list[int]:
        import msgspec

        return [msgspec.json.decode(each.value)["n"] for each in self.records(*lanes) if each.value.startswith(b'{"n"')]


@pytest.fixture
def line(kafka, tenant, folder) -> Line:
    settings = CloudSettings(
        tenant=tenant, kafka={"bootstrap.servers": kafka.bootstrap}, shards=2, flow=FlowSettings(tables=str(folder / "tables"))
    )
    create_topics(KafkaClients(settings.kafka), settings, 1)
    return Line(tenant, folder, settings)


async def test_what_is_acknowledged_lands_once_and_the_ledger_agrees(line):
    async with line.bridge(), line.gateway() as outbox:
        await line.put(outbox, *range(1000))
        await line.put(outbox, *range(1000, 1100), lane=Lane.ALARM)
        await line.drained(outbox)
    assert sorted(line.landed(Lane.TELEMETRY, Lane.ALARM)) == list(range(1100))
    assert line.landed(Lane.TELEMETRY) == list(range(1000))
    evidence = await asyncio.to_thread(gather, KafkaClients(line.cloud.kafka), line.cloud)
    assert [finding for each in evidence for finding in judge(each)] == []


async def test_a_statement_goes_out_when_nothing_else_does(line):
    """The last word of a gateway on what it acknowledged must not wait for the next event."""
    async with line.bridge(), line.gateway() as outbox:
        await line.put(outbox, *range(10))

        async def unstated() -> bool:
            (stream,) = await outbox.streams()
            return stream.head == 10 or stream.settled < stream.head

        await until_not(unstated, "the statement was not written, or did not go out")


async def test_what_was_stored_while_the_bridge_was_away_lands_when_it_comes(line):
    async with line.bridge():
        pass
    async with line.gateway() as outbox:
        await line.put(outbox, *range(500))
        async with line.bridge():
            await line.drained(outbox)
    assert line.landed() == list(range(500))


async def test_a_bridge_that_comes_and_goes_doubles_nothing(line):
    async with line.bridge():
        pass
    async with line.gateway() as outbox:
        for begin in range(0, 2000, 400):
            async with line.bridge():
                await line.put(outbox, *range(begin, begin + 400))
        async with line.bridge():
            await line.drained(outbox)
    assert line.landed() == list(range(2000))


async def test_settlements_that_were_lost_are_resent_and_refused(line, monkeypatch):
    """The gateway forgets every settlement, as if it was killed right after the bridge had committed."""
    async with line.bridge() as bridge:
        outbox = Outbox.open(line.settings())
        monkeypatch.setattr(outbox, "settle", lambda *_: None)
        async with line.uplink(outbox):
            await line.put(outbox, *range(300))

            async def missing() -> bool:
                return sum(shard.counters.landed for shard in bridge.shards) < 300

            await until_not(missing, "nothing landed")
        await outbox.close()
        async with line.gateway() as outbox:
            await line.drained(outbox)
    assert line.landed() == list(range(300))


async def test_a_lone_refused_event_in_a_batch_of_a_hundred_stays_alone(line):
    async with line.bridge():
        pass
    outbox = Outbox.open(line.settings())
    await line.put(outbox, *range(1, 101))
    await outbox.close()
    with sqlite3.connect(line.folder / "gw-1" / "outbox.db") as database:
        database.execute("UPDATE event SET body = x'7b7d' WHERE sequence = 42")
    async with line.bridge(), line.gateway() as outbox:
        await line.drained(outbox)
        (stream,) = await outbox.streams()
        assert stream.counts.quarantined == 1
    assert line.landed() == [n for n in range(1, 101) if n != 42]
    places = [place_of(each.headers, each.value) for each in line.records()]
    assert [place.last for place in places][:100] == list(range(1, 101))
    gaps = [each for each in line.records() if dict(each.headers)["content-type"] == GAP_CONTENT_TYPE.encode()]
    (gap,) = [decode_gap(each.value) for each in gaps]
    assert (gap.first, gap.last, gap.reason) == (42, 42, "quarantined")


async def test_a_restored_copy_of_an_outbox_loses_nothing(line):
    """An older copy of the file comes back: its numbers are taken, so what it has goes out under a new stream."""
    async with line.bridge():
        outbox = Outbox.open(line.settings())
        await line.put(outbox, *range(10))
        await outbox.close()
        source = line.folder / "gw-1" / "outbox.db"
        backup = source.read_bytes()
        async with line.gateway() as outbox:
            await line.put(outbox, *range(10, 20))
            await line.drained(outbox)
        for leftover in source.parent.glob("outbox.db*"):
            leftover.unlink()
        source.write_bytes(backup)
        async with line.gateway() as outbox:
            await line.put(outbox, *range(20, 30))
            await line.drained(outbox)
    assert set(line.landed()) == set(range(30))


async def test_two_connections_of_one_name_the_second_takes_over(line):
    async with line.bridge() as bridge, line.gateway() as outbox:
        await line.put(outbox, 1)
        await line.drained(outbox)
        assert bridge.listener.gateways == ["gw-1"]
        copy = Line(line.tenant, line.folder / "copy", line.cloud, line.port)
        async with copy.gateway() as other:
            await copy.put(other, 2)
            await copy.drained(other)
            assert bridge.listener.gateways == ["gw-1"]
    assert set(line.landed()) == {1, 2}
