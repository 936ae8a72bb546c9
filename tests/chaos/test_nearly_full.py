"""C10 where a lane lets go: a gateway in 4 MB, killed while it drops and while it sends. The ledger knows every number."""

import asyncio
import json
import random
from contextlib import suppress

import pytest

from chaos import workload
from chaos.judging import LOCK
from chaos.workload import answered
from fogline.commands.command import CommandState
from fogline.events.event import Lane, Receipt
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.ledger.balance import judge
from fogline_cloud.ledger.sources import gather
from fogline_cloud.settings import CloudSettings
from fogline_cloud.shard.topic_admin import create_topics
from fogline_edge.operate.status import read_status
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.settings import EdgeSettings, OutboxSettings, UplinkSettings
from fogline_lab.amqp import within
from fogline_lab.device.mqtt_lamp import MqttLamp
from fogline_lab.disk import Disk
from fogline_lab.events import make_arrival, make_noise
from fogline_lab.gateway.gateway_process import GatewayProcess
from fogline_lab.line.line import Line
from fogline_lab.power_cut import PowerCut

BOUND = 4_000_000
ROUNDS = 100
SETTINGS = """
tenant = "{tenant}"
gateway = "gw-1"
data = "{data}"
[outbox]
max_bytes = 4000000
when_full = {{ telemetry = "drop_oldest" }}
[uplink]
bridge = "127.0.0.1:{bridge}"
batch_events = 5
statement_s = 0.5
retry_s = 0.05
retry_cap_s = 0.2
[mqtt]
port = 0
"""


class Site:
    """A gateway's process that may be killed at any moment, its device that goes on until it is acknowledged, and a bridge."""

    def __init__(self, line: Line) -> None:
        self.line = line
        self.random = random.Random(7)
        self.acknowledged = 0
        self.gateway = GatewayProcess(line.folder, line.port)
        config = SETTINGS.format(tenant=line.tenant, data=self.gateway.data, bridge=line.port)
        (line.folder / "edge.toml").write_text(config)

    async def start(self) -> None:
        self.port = await self.gateway.start()
        self.device = MqttLamp()
        await self.device.connect(self.port)

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            self.gateway._process.kill()

    async def say(self, events: int, *, kill_at: int) -> None:
        """So many events; at one of them the gateway is killed, and what is not acknowledged is sent again."""
        for n in range(events):
            payload = json.dumps({"n": self.acknowledged, "x": self.random.randbytes(15_000).hex()}).encode()
            publishing = asyncio.create_task(self.device.publish("telemetry", payload))
            if n == kill_at:
                await asyncio.sleep(0)
                self.kill()
            try:
                await publishing
            except (ConnectionError, asyncio.IncompleteReadError):
                await self.gateway.died()
                await self.start()
                await self.device.publish("telemetry", payload, dup=True)
            self.acknowledged += 1

    async def settles(self, condition, what: str) -> None:
        async def so() -> None:
            while not condition(await asyncio.to_thread(read_status, self.gateway.data)):  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.02)

        await within(so(), what, 60)


@pytest.fixture
def line(kafka, tenant, folder) -> Line:
    settings = CloudSettings(tenant=tenant, kafka={"bootstrap.servers": kafka.bootstrap}, shards=2)
    create_topics(KafkaClients(settings.kafka), settings, 1)
    return Line(tenant, folder, settings)


@pytest.mark.slow
@pytest.mark.fault("C10", "C3")
async def test_events_dropped_by_a_killed_gateway_are_named_by_sequence_and_no_other_is_missing(line):
    async with line.bridge():
        pass
    site = Site(line)
    await site.start()
    for turn in range(4):
        await site.say(200, kill_at=site.random.randrange(200))
        before = read_status(site.gateway.data)["settled_events"]
        async with line.bridge():
            await site.settles(lambda status, before=before: status["settled_events"] > before, "nothing is accepted")
            if turn % 2:
                site.kill()
                await site.gateway.died()
                await site.start()
    async with line.bridge():
        await site.settles(lambda status: not status["backlog"], "it does not drain")
    status = await site.gateway.stop()
    assert (line.folder / "data" / "outbox.db").stat().st_size <= BOUND
    landed = [json.loads(each.value)["n"] for each in line.records() if each.value.startswith(b'{"n"')]
    assert len(set(landed)) == len(landed), "something is there twice"
    assert set(landed) <= set(range(site.acknowledged)), "something is there that nobody said"
    evidence = gather(KafkaClients(line.cloud.kafka), line.cloud).streams
    assert [finding for each in evidence for finding in judge(each)] == []
    losses = [loss for each in evidence for loss in each.losses]
    assert {loss.reason for loss in losses} == {"dropped"}
    explained = sum(loss.last - loss.first + 1 for loss in losses)
    missing = set(range(site.acknowledged)) - set(landed)
    statements = status["stored"] - site.acknowledged
    print(f"{site.acknowledged} acknowledged, {len(missing)} dropped, {len(losses)} gap records, {statements} statements")
    assert len(missing) > 100
    assert 0 <= explained - len(missing) <= statements, "each that is missing is explained, and besides them only statements"
    assert explained <= status["dropped"]


@pytest.mark.slow
@pytest.mark.fault("C10")
async def test_a_lane_that_lets_go_is_filled_again_and_again_and_always_takes_more(folder):
    settings = EdgeSettings(
        tenant="acme",
        gateway="gw-1",
        data=str(folder / "data"),
        outbox=OutboxSettings(max_bytes=BOUND, when_full={"telemetry": "drop_oldest"}),
        uplink=UplinkSettings(statement_s=3600),
    )
    outbox = Outbox.open(settings)
    payload, stored = make_noise(100_000), 0
    for turn in range(ROUNDS):
        told = []
        for _ in range(45):
            told.append(asyncio.get_running_loop().create_future())
            outbox.port.put(make_arrival(data=payload), told[-1].set_result)
            if len(told) % 5 == 0:
                assert set(await within(asyncio.gather(*told), "not acknowledged")) == {Receipt.STORED}
        stored += len(told)
        assert await answered(outbox, f"C{turn}") == (Receipt.STORED, CommandState.SUCCEEDED)
        streams = {each.lane: each for each in await outbox.streams.pending()}
        telemetry = streams[Lane.TELEMETRY]
        assert telemetry.counts.acknowledged == stored
        gap, *rows = await outbox.streams.read(telemetry.stream, telemetry.settled, 1000)
        assert gap.sequence - gap.spans == telemetry.settled
        assert [row.sequence for row in rows] == list(range(gap.sequence + 1, telemetry.head + 1))
        assert len(rows) > 10
        for each in streams.values():
            outbox.streams.settle(each.stream, each.head)
    streams = {each.lane: each for each in await outbox.streams.pending()}
    assert (streams[Lane.REPLY].counts.stored, streams[Lane.REPLY].counts.dropped) == (ROUNDS, 0)
    await outbox.close()
    assert (folder / "data" / "outbox.db").stat().st_size <= BOUND


@pytest.mark.slow
@pytest.mark.fault("C7", "C10")
async def test_a_power_cut_while_it_drops_leaves_every_number_as_an_event_or_in_the_gap(folder, memory):
    """Of the disk images that could be there one in 97."""
    disk, options = Disk(folder / LOCK), {"max_bytes": 1_000_000, "when_full": {"telemetry": "drop_oldest"}}
    outbox = Outbox.open(workload.settings(folder, **options), disk.connect)
    told = {}
    for turn in range(9):
        done = [asyncio.get_running_loop().create_future() for _ in range(8)]
        for each in done:
            outbox.port.put(make_arrival(data=make_noise(20_000)), each.set_result)
        await within(asyncio.gather(*done), "not acknowledged")
        told[len(disk.record)] = 8 * (turn + 1)
    await outbox.close()
    seen, images = set(), 0
    for image in PowerCut(disk.record, every=97).images():
        if image.cut <= min(told):
            continue
        image.write(memory)
        images += 1
        opened = Outbox.open(workload.settings(memory, **options))
        (stream,) = await opened.streams.pending()
        rows = await opened.streams.read(stream.stream, 0, 1000)
        await opened.close()
        gone = rows[0].sequence if rows[0].spans > 1 else 0
        seen.add(gone)
        assert [row.sequence for row in rows] == list(range(rows[0].sequence, stream.head + 1)), image.how
        assert (rows[0].sequence - rows[0].spans, stream.counts.dropped) == (0, gone), image.how
        assert stream.head >= max(known for step, known in told.items() if step <= image.cut), f"lost: {image.how}"
        assert not list(memory.glob("*damaged*")), image.how
    print(f"{images} disk images, after {len(seen)} different drops")
    assert images > 50
    assert len(seen) > 2, "it dropped again and again"
