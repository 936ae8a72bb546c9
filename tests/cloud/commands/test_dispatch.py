"""A command's end is written as soon as there is a shard to write it, however late."""

import asyncio
import time

import pytest

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


def dispatcher(shard):
    return Dispatcher(shard, GatewayDesk(shard, 1, 100.0), Routes(), CommandSettings(), Signer())


@pytest.mark.fault("S3")
async def test_what_another_shard_says_of_a_command_changes_nothing():
    """B2: the shard of a forging gateway does not know the command, but the bridge does."""
    commands = dispatcher(OneShard())
    asked = record(expires_ms=int(time.time() * 1000) + 60_000)
    commands._take(asked)
    commands._take(record(gateway="gw-2", state=State.SUCCEEDED, status=200, digest="", operator="", reply_to=""))
    assert commands._registry.get("C1") == asked
    commands.close()


async def test_a_command_that_ends_while_kafka_is_away_is_ended_when_it_is_back(monkeypatch):
    monkeypatch.setattr(dispatch, "AGAIN_S", 0.01)
    shard = OneShard()
    commands = dispatcher(shard)
    commands._take(record(expires_ms=int(time.time() * 1000)))
    await within(shard.asked.wait(), "nobody thinks of its end")
    assert shard.changes.empty()
    shard.ready = True
    change = await within(shard.changes.get(), "its end is forgotten")
    assert change.record.state is State.EXPIRED
    commands._take(change.record)
    assert not commands._courses
    commands.close()
