"""The uplink is away for days, or slow: what is stored stays in bound, lands once, alarms first, and holds up no command."""

import asyncio
import os
from contextlib import AsyncExitStack

import pytest

from fogline.commands.command import CommandState
from fogline.errors import SlowDown
from fogline.events.event import Lane
from fogline_cloud.commands.client.operator import Ask, Operator
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.settings import EdgeSettings, OutboxSettings, UplinkSettings
from fogline_lab.amqp import within
from fogline_lab.clock import FakeClock
from fogline_lab.device.command_device import CommandDevice
from fogline_lab.events import make_arrival
from fogline_lab.line.line import Line, gateway, serving
from fogline_lab.tcp_line import TcpLine

MIB = 2**20
PAGES_BYTES = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"
BOUND_BYTES = 4_000_000
PAUSE_S = 7 * 3600
ALARM_BASE = 1_000_000
BACKLOG_BYTES = 20_000_000
BODY_BYTES = 16_000
COMMANDS = 20


def body(number: int) -> bytes:
    """Return a body that no compression makes small."""
    return b'{"n": %d, "more": "%s"}' % (number, os.urandom(300).hex().encode())


async def put_until_full(line: Line, outbox: Outbox, clock: FakeClock) -> None:
    """Two days of telemetry, with an alarm here and there, until no more is taken."""

    def put(number: int, data: bytes, lane: Lane) -> None:
        outbox.port.put(make_arrival(number, data=data, lane=lane), lambda _: line.acknowledged.append(number))

    try:
        for number in range(100_000):
            if number % 100 == 99:
                put(ALARM_BASE + number, b'{"n": %d}' % (ALARM_BASE + number), Lane.ALARM)
                clock.go_on(PAUSE_S)
                await outbox.streams.pending()  # comes after the commit
            put(number, body(number), Lane.TELEMETRY)
    except SlowDown:
        return
    raise AssertionError("it takes more than its bound")


@pytest.mark.fault("N1")
async def test_two_days_without_uplink_stay_in_bound_and_drain_with_alarms_first(line, folder):
    """N1: stored until the bound, then refused; drained over a slow line: the alarms are over before the telemetry is."""
    clock = FakeClock()
    async with serving(line):
        settings = EdgeSettings(
            tenant=line.tenant,
            gateway="gw-1",
            data=str(folder / "gw-1"),
            outbox=OutboxSettings(max_bytes=BOUND_BYTES),
            uplink=UplinkSettings(bridge="127.0.0.1:1", batch_events=100),
        )
        outbox = Outbox.open(settings, clock=clock)
        await put_until_full(line, outbox, clock)
        used = await outbox.read_journal(lambda connection, _: connection.execute(PAGES_BYTES).fetchone()[0])
        stored = {stream.lane: stream.head for stream in await outbox.streams.pending()}
        assert BOUND_BYTES / 2 < used <= BOUND_BYTES
        async with TcpLine(line.port, bits_per_s=4e6) as way:
            settings = UplinkSettings(bridge=f"127.0.0.1:{way.port}", batch_events=100)
            async with line.uplink(outbox, settings=settings):
                left = await left_when_alarms_are_over(outbox)
                await line.drained(outbox)
        await outbox.close()
    print(f"{used / MIB:.1f} MiB hold {stored}; {left} telemetry events waited when the last alarm had landed")
    assert left > stored[Lane.TELEMETRY] / 2
    assert sorted(line.landed(Lane.TELEMETRY, Lane.ALARM)) == sorted(line.acknowledged)


async def left_when_alarms_are_over(outbox: Outbox) -> int:
    """Return the telemetry that waits when the last alarm has landed."""

    async def over() -> int:
        while True:
            waiting = {stream.lane: stream.head - stream.settled for stream in await outbox.streams.pending()}
            if not waiting[Lane.ALARM]:
                return waiting[Lane.TELEMETRY]
            await asyncio.sleep(0.01)  # settlements give no event

    return await within(over(), "the alarms do not land", 60)


@pytest.mark.fault("N7")
async def test_a_command_overtakes_20_mb_on_a_slow_line(line):
    """N7: operator, bridge, gateway, device and back, while 20 MB go out over 1 Mbit/s."""
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(serving(line))
        way = await stack.enter_async_context(TcpLine(line.port, bits_per_s=1e6, delay_s=0.025))
        bridge, line.port = line.port, way.port
        outbox, downlink = await stack.enter_async_context(gateway(line))
        operator = await stack.enter_async_context(Operator("127.0.0.1", bridge, line.tenant))
        await within(operator.attached(), "the operator cannot attach")
        device = CommandDevice(downlink)
        downlink.reachable("lamp-1", device)
        await line.put(outbox, 0)
        await line.drained(outbox)
        for _ in range(BACKLOG_BYTES // BODY_BYTES // 50):
            bodies = [os.urandom(BODY_BYTES) for _ in range(50)]
            await asyncio.gather(*(line.put(outbox, 1, data=each, content_type="x/y", lane=Lane.BULK) for each in bodies))
        took = [await round_trip(operator) for _ in range(COMMANDS)]
        waiting = sum(stream.head - stream.settled for stream in await outbox.streams.pending())
        assert waiting > BACKLOG_BYTES / BODY_BYTES / 4, "the commands waited for the backlog"
        median = sorted(took)[COMMANDS // 2]
        print(f"{COMMANDS} commands behind {waiting * BODY_BYTES / 1e6:.0f} MB: {median:.2f} s, at most {max(took):.2f} s")


async def round_trip(operator: Operator) -> float:
    began = asyncio.get_running_loop().time()
    verdict = await within(operator.request(Ask("lamp-1", "switch", b"{}", durable=False)), "no answer")
    assert verdict.state is CommandState.SUCCEEDED
    return asyncio.get_running_loop().time() - began
