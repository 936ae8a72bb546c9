"""The counters that a process prints."""

import asyncio
import json
import os
import signal

from fogline.amqp.scheduler import Share
from fogline.message import Message
from fogline.process.monitoring.statistics import answer_sigusr1, census
from fogline_lab.amqp import End, pair, within


async def test_open_connections_and_unsettled_deliveries_are_counted():
    client, server = End(), End(answer=lambda _: None)
    async with pair(client, server) as connection:
        sender = connection.open_sender(connection.open_session(), "telemetry", "ingest/t/0", Share(), {})
        sender.send(Message(body=b"x"))
        await within(server.link_is_there(1), "no link")
        found = census()
        assert (found["connections"], found["unsettled"]) == (2, 1)  # both ends are of this process
    assert census() == {"tasks": 1, "connections": 0, "unsettled": 0}


async def test_a_signal_asks_for_it(capsys):
    answer_sigusr1()
    os.kill(os.getpid(), signal.SIGUSR1)
    while not (line := capsys.readouterr().out):  # noqa: ASYNC110 - a signal gives no event
        await asyncio.sleep(0.01)
    assert json.loads(line)["census"].keys() == {"tasks", "connections", "unsettled"}
    asyncio.get_running_loop().remove_signal_handler(signal.SIGUSR1)
