"""The network between gateway and bridge fails in every way: what was acknowledged lands once, and nothing is left over."""

import asyncio
import gc
import os
import resource
import weakref
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from math import inf
from pathlib import Path
from random import Random, uniform

import pytest

from fogline.amqp.backoff import Backoff
from fogline.amqp.driver import CLOSE_S, AmqpConnection, open_connections
from fogline.amqp.engine import SERVER_IDLE_TIMEOUT_S, Engine
from fogline.amqp.outcome import Condition
from fogline.commands.command import CommandState
from fogline_cloud.commands.client.operator import Ask, Operator
from fogline_edge.machine.boot import SYSTEM
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.settings import UplinkSettings
from fogline_edge.uplink.session import BridgeSession
from fogline_edge.uplink.uplink import Uplink
from fogline_lab.amqp import within
from fogline_lab.device.command_device import CommandDevice
from fogline_lab.gateway.connected_gateway import no_commands
from fogline_lab.line.line import gateway, serving
from fogline_lab.memory import resident_bytes
from fogline_lab.tcp_line import HALF_OPEN, LineFault, PlannedFault, TcpLine
from fogline_lab.waiting import LIMIT_S, until
from sampling import a_few

NOTICED_S = 35.0
DEATHS = 8
GATEWAYS = 500
MIB = 2**20


@asynccontextmanager
async def at_a_distance(line, backoff=None, idle_timeout_s=15.0):
    """A bridge, a gateway that is connected to it through a faulty line, and that line."""
    async with AsyncExitStack() as stack:
        bridge = await stack.enter_async_context(serving(line))
        way = await stack.enter_async_context(TcpLine(line.port))
        uplink = UplinkSettings(
            bridge=f"127.0.0.1:{way.port}", batch_events=100, statement_s=0.5, idle_timeout_s=idle_timeout_s
        )
        outbox = Outbox.open(line.settings())
        stack.push_async_callback(outbox.close)
        serve = asyncio.create_task(Uplink(outbox, uplink, no_commands, backoff or Backoff(0.05, 0.5)).run())
        stack.push_async_callback(ended, serve)
        await line.put(outbox, 0)
        await line.drained(outbox)
        yield bridge, outbox, way


async def ended(task):
    task.cancel()
    await asyncio.wait({task})


async def put_big(line, outbox, numbers):
    """Events of 16 KB all at once: whole batches of them are more than sockets hold."""
    bodies = {number: b'{"n": %d, "more": "%s"}' % (number, os.urandom(8000).hex().encode()) for number in numbers}
    await asyncio.gather(*(line.put(outbox, number, data=body) for number, body in bodies.items()))


@pytest.mark.parametrize("how", a_few(HALF_OPEN, LineFault.SWALLOW), ids=lambda how: how.name.lower())
@pytest.mark.fault("N2")
async def test_a_half_open_connection_is_noticed_and_another_one_opened(line, monkeypatch, how):
    """N2: half-open TCP, while much is on its way: noticed within the idle time-out, reconnected, all of it lands once."""
    monkeypatch.setattr("fogline_cloud.bridge.door.authentication.Engine", partial(Engine, idle_timeout_s=1.0))
    async with at_a_distance(line, idle_timeout_s=1.0) as (bridge, outbox, way):
        guest = bridge.gateways.get("gw-1")
        way.fail(how)
        failed_at = asyncio.get_running_loop().time()
        await put_big(line, outbox, range(1, 151))
        await until(lambda: len(way.arrivals) > 1, "the gateway does not connect again")
        print(f"{how.name}: connected again after {asyncio.get_running_loop().time() - failed_at:.1f} s, idle time-out 1.0 s")
        await line.drained(outbox)
        assert bridge.gateways.get("gw-1") is not guest
        await until(lambda: guest.connection.protocol._ended, "the bridge believes the dead connection alive")
    assert line.landed() == list(range(151))


@pytest.mark.fault("N2")
def test_the_production_time_outs_notice_a_half_open_connection_in_35_s():
    """N2: idle time-out, time to give the connection up, and the first pause are less than what is required."""
    assert SERVER_IDLE_TIMEOUT_S + CLOSE_S + Backoff().base_s < NOTICED_S


@pytest.mark.fault("C5")
async def test_connection_is_cut_repeatedly_with_batches_in_flight(line):
    """C5: each connection dies, as that of a router that is killed, after some batches have gone and before all are settled."""
    chance = Random(5)
    async with at_a_distance(line) as (bridge, outbox, way):
        way.plan = lambda: (
            PlannedFault(LineFault.RESET, chance.randrange(200_000, 700_000), inf) if len(way.failed) < DEATHS else None
        )
        way.cut()
        await put_big(line, outbox, range(1, 501))
        await line.drained(outbox)
        refused = sum(shard.counters.duplicate for shard in bridge.shards)
        assert way.failed == [LineFault.RESET] * DEATHS
    print(f"{len(way.failed)} deaths in mid-batch: {refused} events came again, and were refused")
    assert line.landed() == list(range(501))


@pytest.mark.slow
@pytest.mark.fault("C5")
async def test_a_line_that_is_cut_every_few_kilobytes_still_gets_everything_through(line):
    """C5: no connection lives for a whole batch of the usual size."""
    bodies = {number: b'{"n": %d, "more": "%s"}' % (number, os.urandom(150).hex().encode()) for number in range(1, 401)}
    async with at_a_distance(line, Backoff(0.01, 0.05)) as (_, outbox, way):
        way.plan = lambda: PlannedFault(LineFault.RESET, 16_000, inf)
        way.cut()
        for number, body in bodies.items():
            await line.put(outbox, number, data=body)
        await line.drained(outbox)
        print(f"{len(way.failed)} connections of 16 kB each")
        assert len(way.failed) > 1
    assert line.landed() == list(range(401))


async def detach_one(guest):
    link = next(link for link in guest.addresses if link.name == "telemetry")
    guest.connection.refuse_link(link, Condition("amqp:internal-error", "so says the test"))


async def detach_control(guest):
    guest.connection.refuse_link(guest.control.link, Condition("amqp:internal-error", "so says the test"))


async def end_session(guest):
    link = next(link for link in guest.addresses if link.name == "telemetry")
    import proton

    link.native.session.condition = proton.Condition("amqp:session:errant-link", "so says the test")
    link.native.session.close()
    guest.connection.protocol.turn()


@pytest.mark.parametrize("how", a_few([detach_one, detach_control, end_session], end_session))
@pytest.mark.fault("N3")
async def test_an_ended_link_or_session_is_opened_again(line, how):
    """N3: the bridge ends a link or a session with an error: the gateway has it again soon, and all lands once."""
    async with at_a_distance(line) as (bridge, outbox, _):
        for begin in range(1, 101, 20):
            guest = bridge.gateways.get("gw-1")
            await line.put(outbox, *range(begin, begin + 10))
            await how(guest)
            await line.put(outbox, *range(begin + 10, begin + 20))
            await within(line.drained(outbox), "nothing lands any more")
    assert line.landed() == list(range(101))


@pytest.mark.slow
@pytest.mark.fault("N4")
async def test_without_credit_the_outbox_grows_memory_does_not_and_commands_still_flow(line, monkeypatch):
    """N4: the bridge grants no credit: events wait in the outbox, commands reach their devices; then it drains."""
    async with (
        serving(line) as bridge,
        gateway(line) as (outbox, downlink),
        Operator("127.0.0.1", line.port, line.tenant) as op,
    ):
        await within(op.attached(), "the operator cannot attach")
        device = CommandDevice(downlink)
        downlink.reachable("lamp-1", device)
        await line.put(outbox, 0)
        await line.drained(outbox)
        monkeypatch.setattr("fogline_cloud.bridge.gateways.gateways.INGEST_CREDIT", 0)
        former = bridge.gateways.get("gw-1")
        former.connection.abort()
        await until(lambda: (guest := bridge.gateways.get("gw-1")) and guest is not former and guest.welcomed, "not back")
        held = []
        for begin in range(1, 50_001, 1000):
            await line.put(outbox, *range(begin, begin + 1000))
            held.append(resident_bytes())
            if begin % 10_000 == 1:
                ran = len(device.ran)
                asked = asyncio.create_task(op.request(Ask("lamp-1", "switch", b"{}", reply=False)))
                await until(lambda ran=ran: len(device.ran) > ran, "the command does not come without credit for events")
                assert (await within(asked, "no answer")).state is CommandState.ACCEPTED
        streams = {stream.lane: stream for stream in await outbox.streams.pending()}
        assert streams["telemetry"].head - streams["telemetry"].settled >= 50_000
        grown = held[-1] - held[9]
        print(f"50,000 events wait; {grown / MIB:.1f} MiB more of memory than with 10,000")
        assert grown < 10 * MIB
        guest = bridge.gateways.get("gw-1")
        for link in guest.addresses:
            if not link.name.startswith("hello"):
                guest.connection.grant(link, 16)
        await line.drained(outbox)
    assert line.landed() == list(range(50_001))


def left_over():
    """Count possible leftovers of a reconnect: tasks, files, connections, and messages without an outcome."""
    gc.collect()
    connections = [each for each in gc.get_objects() if type(each) is AmqpConnection]
    waiting = sum(each.unsettled + len(each._outbound._on_wire) + len(each._engine._table.deliveries) for each in connections)
    return len(asyncio.all_tasks()), len(list(Path("/proc/self/fd").iterdir())), len(connections), waiting


@pytest.mark.fault("N5")
@pytest.mark.slow
async def test_100_reconnects_leave_nothing_behind(line):
    """N5: 100 reconnects in the life of one gateway and one bridge, each with batches on their way."""
    async with at_a_distance(line, Backoff(0.01, 0.02)) as (bridge, outbox, way):
        before = left_over()
        for number in range(1, 101):
            guest = bridge.gateways.get("gw-1")
            await line.put(outbox, number)
            way.cut()

            def back(guest=guest):
                now = bridge.gateways.get("gw-1")
                return now is not None and now is not guest and now.welcomed

            await until(back, f"reconnect {number} fails")
        await line.drained(outbox)
        assert len(way.arrivals) > 100
        del guest, back  # they hold the connection before the last
        await until(lambda: len(asyncio.all_tasks()) <= before[0] + 1, "tasks are left over")  # this wait is one, too
        after = left_over()
        print(f"tasks, files, connections, unsettled: {before} before, {after} after {len(way.arrivals) - 1} reconnects")
        assert after[3] == 0
        assert all(now <= then + 2 for now, then in zip(after, before, strict=True))
    assert line.landed() == list(range(101))


def of_the_gateway():
    """Its connections that are open."""
    return [weakref.ref(each) for each in open_connections() if isinstance(each.protocol._handler, BridgeSession)]


@pytest.mark.fault("N5")
async def test_a_connection_that_has_lasted_is_let_go_of_when_it_ends(line):
    """N5: by then it is among the old objects, where the gateway's garbage collector does not look by itself."""
    async with at_a_distance(line, Backoff(0.01, 0.02)) as (_, outbox, way):
        (former,) = of_the_gateway()
        gc.collect()
        gc.collect()
        gc.disable()
        try:
            way.cut()
            await until(lambda: of_the_gateway() not in ([], [former]), "the gateway does not come back")
            await line.put(outbox, 1)
            await line.drained(outbox)
            assert former() is None
        finally:
            gc.enable()


class Nothing:
    """The outbox of a gateway that has no event, and its streams: all that an uplink asks of it to connect and say hello."""

    def __init__(self, tenant, gateway):
        self.tenant = tenant
        self.gateway = gateway
        self.clock = SYSTEM
        self.streams = self.copy = self
        self.journal = "0123456789abcdef"

    async def number(self):
        return 0

    async def learn(self, number, *, replaced):
        """It remembers nothing."""

    def start_sending(self, wake):
        """There is nothing to wake for."""

    def stop_sending(self):
        """Nothing was sent."""

    async def pending(self):
        return []

    async def split_backlog(self, *how):
        """There is nothing to part."""


@pytest.mark.fault("N6")
@pytest.mark.slow
async def test_500_gateways_come_back_at_once(line, monkeypatch):
    """N6: the bridge is away for 500 gateways: all come back, and their attempts are spread."""
    monkeypatch.setattr("fogline_edge.uplink.uplink.gc.collect", lambda *_: 0)  # each would look through the objects of all
    names = [f"gw-{number}" for number in range(GATEWAYS)]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 10 * GATEWAYS)), hard))
    async with AsyncExitStack() as stack:
        bridge = await stack.enter_async_context(serving(line))
        way = await stack.enter_async_context(TcpLine(line.port))
        uplink = UplinkSettings(bridge=f"127.0.0.1:{way.port}")
        loop, meant = asyncio.get_running_loop(), []

        def draw(least, most):
            pause = uniform(least, most)
            meant.append(loop.time() + pause)
            return pause

        serving_all = []
        for name in names:
            serve = asyncio.create_task(Uplink(Nothing(line.tenant, name), uplink, no_commands, Backoff(draw=draw)).run())
            stack.push_async_callback(ended, serve)
            serving_all.append(serve)

        def all_there():
            assert [each.exception() for each in serving_all if each.done()] == []
            guests = [bridge.gateways.get(name) for name in names]
            return all(guest is not None and guest.welcomed for guest in guests)

        await until(all_there, "they do not come", 3 * LIMIT_S)
        meant.clear()
        way.refusing = True
        way.cut()
        await until(lambda: len(meant) >= 3 * GATEWAYS, "they do not try again")
        way.refusing = False
        back_at = loop.time()
        await until(all_there, "they do not come back", 3 * LIMIT_S)
        print(f"{GATEWAYS} gateways back after {loop.time() - back_at:.1f} s, in {len(meant)} attempts")
        first = sorted(meant[:GATEWAYS])
        most = max(sum(begin <= each < begin + 0.1 for each in first) for begin in first)
        print(f"the first {GATEWAYS} attempts within {first[-1] - first[0]:.2f} s, at most {most} in 0.1 s")
        assert most <= GATEWAYS / 4
