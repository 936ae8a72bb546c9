"""A command behind a 20 MB backlog on a line of 10 Mbit/s, ours against first come first served."""

import asyncio
import statistics

import pytest

from fogline.amqp.driver import connect
from fogline.amqp.engine import Engine
from fogline.amqp.scheduler import Scheduler, Share
from fogline.amqp.security import ClientSecurity, ServerSecurity
from fogline.message import Message
from fogline.transport.websocket_request import WebSocketRequest
from fogline_lab.amqp import End, served, within
from fogline_lab.tcp_line import TcpLine

BACKLOG_BYTES = 20_000_000
BATCH_BYTES = 25_000
COMMANDS = 20
FEW, MANY = 8, 80
"""Batches of the backlog, of which the line takes one in 20 ms."""


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


async def overtaken(scheduler: Scheduler, commands: int, *, websocket: bool = False) -> list[int]:
    """Return how many batches of the backlog arrive while each command waits for its outcome, or for `MANY` batches."""
    client, server = End(), End(credit=100_000)
    security = ServerSecurity(websocket=websocket)
    request = WebSocketRequest("fog.example") if websocket else None
    async with served(server, security=security) as port, TcpLine(port, bits_per_s=10_000_000, delay_s=0.025) as line:
        engine = Engine("gateway", security=ClientSecurity(websocket=request))
        connection = await connect("127.0.0.1", line.port, engine, client)
        connection._outbound._scheduler = scheduler
        await within(client.is_open.wait(), "not open")
        bulk = connection.open_sender(connection.open_session(), "bulk", "ingest/t/1", Share(), {})
        control = connection.open_sender(connection.open_session(), "control", "hello/t", Share(strict=0), {})
        await within(control.send(Message(subject="first")), "no credit came")
        body = bytes(BATCH_BYTES)
        backlog = [bulk.send(Message(body=body)) for _ in range(BACKLOG_BYTES // BATCH_BYTES)]
        found = []
        for _ in range(commands):
            at = sum(each.done() for each in backlog)
            either = {control.send(Message(subject="command")), backlog[at + MANY]}
            await within(asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED), "neither the command nor the backlog moves")
            found.append(sum(each.done() for each in backlog) - at)
        assert not backlog[-1].done(), "the backlog was over before the last command"
        connection.abort()
        await within(client.is_closed.wait(), "not closed")
        await asyncio.gather(*backlog, return_exceptions=True)
    return found


@pytest.mark.fault("N7")
async def test_a_command_overtakes_the_backlog_over_websocket():
    """A frame of WebSocket has no more bytes than were handed over, so an urgent message waits for no other frame."""
    ours = await overtaken(Scheduler(), COMMANDS, websocket=True)
    print(f"WebSocket: {statistics.median(ours):.0f} batches of 25 kB pass a command, at most {max(ours)}")
    assert max(ours) <= FEW


@pytest.mark.fault("N7")
async def test_a_command_overtakes_the_backlog():
    ours = await overtaken(Scheduler(), COMMANDS)
    naive = await overtaken(FirstComeFirstServed(), 1)
    print(
        f"20 MB backlog: {statistics.median(ours):.0f} batches of 25 kB pass a command, at most {max(ours)}; naive > {naive[0]}"
    )
    assert max(ours) <= FEW
    assert naive[0] >= MANY
