"""A command behind a 20 MB backlog on a line of 1 Mbit/s, ours against first come first served."""

import asyncio
import statistics
import time

import pytest

from fogline.amqp.driver import connect
from fogline.amqp.engine import Engine
from fogline.amqp.scheduler import Scheduler, Share
from fogline.message import Message
from fogline_lab.amqp import End, served, within
from fogline_lab.tcp_line import TcpLine

BACKLOG_BYTES = 20_000_000
BATCH_BYTES = 25_000
COMMANDS = 20
NAIVE_WAIT_S = 8.0


class FirstComeFirstServed(Scheduler):
    """The order of proton alone: messages are sent in the order in which they were offered."""

    def __init__(self) -> None:
        super().__init__(chunk_bytes=1 << 30)
        super().add("all", Share())
        super().set_credit("all", 1 << 30)
        self._link_of = {}

    def add(self, link, share):
        pass

    def set_credit(self, link, credit):
        pass

    def offer(self, link, token, message):
        self._link_of[token] = link
        super().offer("all", token, message)

    def next(self, _=None):
        chunk = super().next()
        return chunk and type(chunk)(self._link_of[chunk.token], chunk.token, chunk.data, chunk.first, chunk.last)


async def round_trips(scheduler: Scheduler, commands: int, limit_s: float) -> list[float]:
    """Seconds from offering a command to its outcome, while a backlog that never ends goes out."""
    client, server = End(), End(credit=100_000)
    async with served(server) as port, TcpLine(port, bits_per_s=1_000_000, delay_s=0.025) as line:
        connection = await connect("127.0.0.1", line.port, Engine("gateway"), client)
        connection._outbound._scheduler = scheduler
        await within(client.is_open.wait(), "not open")
        bulk = connection.open_sender(connection.open_session(), "bulk", "ingest/t/1", Share(), {})
        control = connection.open_sender(connection.open_session(), "control", "hello/t", Share(strict=0), {})
        await within(control.send(Message(subject="first")), "no credit came")
        body = bytes(BATCH_BYTES)
        backlog = [bulk.send(Message(body=body)) for _ in range(BACKLOG_BYTES // BATCH_BYTES)]
        await within(asyncio.shield(backlog[0]), "the backlog does not move")
        taken = []
        for _ in range(commands):
            began = time.monotonic()
            await asyncio.wait([control.send(Message(subject="command"))], timeout=limit_s)
            taken.append(time.monotonic() - began)
        assert not backlog[-1].done(), "the backlog was over before the last command"
        connection.abort()
        await within(client.is_closed.wait(), "not closed")
        await asyncio.gather(*backlog, return_exceptions=True)
    return taken


@pytest.mark.fault("N7")
async def test_a_command_overtakes_the_backlog():
    ours = await round_trips(Scheduler(), COMMANDS, 10.0)
    naive = await round_trips(FirstComeFirstServed(), 1, NAIVE_WAIT_S)
    worst = max(ours)
    print(
        f"1 Mbit/s, 20 MB backlog: ours median {statistics.median(ours):.3f} s, worst {worst:.3f} s; naive > {naive[0]:.1f} s"
    )
    assert naive[0] > 8 * worst
