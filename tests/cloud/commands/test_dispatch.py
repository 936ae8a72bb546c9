"""A command's end is written as soon as there is a shard to write it, however late."""

import asyncio
import time

from cloud.commands.test_registry import record
from fogline.command import State
from fogline.signature import Signer
from fogline.testing.amqp import within
from fogline_cloud.bridge.gateways import GatewayDesk
from fogline_cloud.commands import dispatch
from fogline_cloud.commands.dispatch import Dispatcher
from fogline_cloud.commands.routes import Routes
from fogline_cloud.settings import CommandSettings


class OneShard:
    """A tenant's only shard, which is there when it is `ready`."""

    whole = True

    def __init__(self) -> None:
        self.ready = False
        self.asked = asyncio.Event()
        self.changes: asyncio.Queue = asyncio.Queue()

    def get(self, _number):
        self.asked.set()
        return self

    def submit(self, work):
        self.changes.put_nowait(work)


async def test_a_command_that_ends_while_kafka_is_away_is_ended_when_it_is_back(monkeypatch):
    monkeypatch.setattr(dispatch, "AGAIN_S", 0.01)
    shard = OneShard()
    commands = Dispatcher(shard, GatewayDesk(shard, 1, 100.0), Routes(), CommandSettings(), Signer())
    commands._take(record(expires_ms=int(time.time() * 1000)))
    await within(shard.asked.wait(), "nobody thinks of its end")
    assert shard.changes.empty()
    shard.ready = True
    change = await within(shard.changes.get(), "its end is forgotten")
    assert change.record.state is State.EXPIRED
    commands._take(change.record)
    assert not commands._courses
    commands.close()
