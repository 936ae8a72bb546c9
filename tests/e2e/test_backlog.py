"""After an outage: what is new goes before what has waited, each stream in its order, everything once."""

import asyncio
import os
import shutil

import msgspec
import pytest

from fogline.events.event import Lane
from fogline.gateway.ledger import STATEMENT_CONTENT_TYPE, decode_statement
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.kafka.records import position_of
from fogline_cloud.ledger.balance import judge
from fogline_cloud.ledger.sources import gather
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.outbox.writer.renumbering import MAX_BEHIND
from fogline_edge.settings import EdgeSettings, UplinkSettings
from fogline_lab.amqp import within
from fogline_lab.events import make_arrival
from fogline_lab.tcp_line import TcpLine

WAITING = 300


def settings(line, data: str, port: int, statement_s: float = 0.5) -> EdgeSettings:
    uplink = UplinkSettings(
        bridge=f"127.0.0.1:{port}",
        batch_events=10,
        backfill={"telemetry": "newest"},
        backfill_events=100,
        statement_s=statement_s,
    )
    return EdgeSettings(tenant=line.tenant, gateway="gw-1", data=str(line.folder / data), uplink=uplink)


async def put(outbox, first: int, count: int, lane: Lane = Lane.TELEMETRY) -> None:
    """Events that do not become smaller on the way."""
    told = [asyncio.get_running_loop().create_future() for _ in range(count)]
    for n, done in enumerate(told, start=first):
        data = b'{"n": %d, "x": "%s"}' % (n, os.urandom(1000).hex().encode())
        outbox.port.put(make_arrival(data=data, lane=lane), done.set_result)
    await within(asyncio.gather(*told), "not acknowledged")


async def telemetry(outbox):
    """Closed streams, and the open one."""
    streams = [each for each in await outbox.streams.pending() if each.lane is Lane.TELEMETRY]
    return [each for each in streams if not each.open], next(each for each in streams if each.open)


def killed(line, data: str, copy: str) -> None:
    """Copy the files that a gateway leaves if it is killed now."""
    shutil.copytree(line.folder / data, line.folder / copy)


@pytest.mark.fault("N1", "C3")
async def test_after_an_outage_the_newest_lands_first_and_all_of_it_once_though_the_gateway_is_killed(line):
    async with line.bridge(), TcpLine(line.port, bits_per_s=2_000_000) as slow:
        outbox = Outbox.open(settings(line, "gw", slow.port))
        await put(outbox, 0, WAITING)
        await put(outbox, WAITING, 20, Lane.ALARM)
        async with line.uplink(outbox, settings=settings(line, "gw", slow.port).uplink):
            await until(outbox, lambda closed, _: closed and closed[0].settled)
            await put(outbox, 1000, 1)
            (closed,), _ = await until(outbox, lambda _, opened: opened.head and opened.settled == opened.head)
            assert closed.head == WAITING + 1, "its last word is its last"
            assert closed.settled < closed.head / 2, "what is new waited for what is old"
        killed(line, "gw", "copy")
        await outbox.close()

        outbox = Outbox.open(settings(line, "copy", slow.port))
        await put(outbox, 2000, 150)
        async with line.uplink(outbox, settings=settings(line, "copy", slow.port).uplink):
            await until(outbox, lambda closed, _: len(closed) == 2)
            await put(outbox, 3000, 1)
            closed, _ = await until(outbox, lambda _, opened: opened.head and opened.settled == opened.head)
            assert closed, "what is new waited for what is old"
            await line.drained(outbox)
        await outbox.close()
    judge_landed(line, {*range(WAITING + 20), 1000, *range(2000, 2150), 3000}, closed=2)


async def until(outbox, condition):
    """Look at the telemetry streams again and again."""

    async def so():
        while not condition(*(streams := await telemetry(outbox))):  # noqa: ASYNC110 - another thread's counts give no event
            await asyncio.sleep(0.01)
        return streams

    return await within(so(), "it does not come to that", 60)


def judge_landed(line, expected: set[int], closed: int) -> None:
    """Each event once; each stream in its order, a closed one to its last word; the ledger balances."""
    records = line.records(Lane.TELEMETRY, Lane.ALARM)
    numbers = [msgspec.json.decode(each.value)["n"] for each in records if each.value.startswith(b'{"n"')]
    assert sorted(numbers) == sorted(expected)
    streams: dict[str, list[int]] = {}
    ended = set()
    for each in sorted(records, key=lambda record: (record.topic, record.partition, record.offset)):
        place = position_of(each.headers, each.value)
        streams.setdefault(place.stream, []).append(place.last)
        if dict(each.headers)["content-type"] == STATEMENT_CONTENT_TYPE.encode() and decode_statement(each.value).closed:
            ended.add((place.stream, place.last))
    assert all(each == list(range(1, len(each) + 1)) for each in streams.values())
    assert len(ended) == closed
    assert all(streams[stream][-1] == last for stream, last in ended)
    evidence = gather(KafkaClients(line.cloud.kafka), line.cloud).streams
    assert [finding for each in evidence for finding in judge(each)] == []


async def test_after_many_outages_a_few_streams_wait_and_no_more(line):
    """Each time that a connection begins there is another backlog, and nothing of it is ever taken."""
    outbox = Outbox.open(settings(line, "gw", 1, statement_s=3600))  # so that no statement is among the events counted here
    for outage in range(MAX_BEHIND + 3):
        await put(outbox, 1000 * outage, 120)
        await outbox.streams.split_backlog(frozenset({Lane.TELEMETRY}), 100)
    closed, opened = await telemetry(outbox)
    assert (len(closed), opened.head) == (MAX_BEHIND, 3 * 120)
    async with line.bridge():
        async with line.uplink(outbox, settings=settings(line, "gw", line.port).uplink):
            await line.drained(outbox)
        await outbox.close()
    judge_landed(line, {1000 * outage + n for outage in range(MAX_BEHIND + 3) for n in range(120)}, closed=MAX_BEHIND)
