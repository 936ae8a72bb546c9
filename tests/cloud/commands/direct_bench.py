"""The command side of a bridge with one gateway, whose outcomes and commits a test sets."""

import asyncio
import time
from types import SimpleNamespace

from fogline.amqp.outcome import DECODE_ERROR, rejected
from fogline.commands.cancel import is_cancel
from fogline.commands.command import CONFLICT, Deadline, is_command, is_query
from fogline.errors import Unreachable
from fogline_cloud.commands.registry import Registry
from fogline_lab.bridge.command_records import make_record
from fogline_lab.bridge.command_side import CommandSide, OneShard

GONE = rejected(DECODE_ERROR, "a hello is not readable")
OTHER = rejected(CONFLICT, "another body")


class Bench:
    """The command side of a bridge with one gateway and one shard. A test sets the gateway's outcomes and the commits."""

    def __init__(self):
        self.shard = OneShard()
        self.shard.ready = True
        self.truth = Registry()
        self.commands = CommandSide(self.shard)
        self.commands.routes.recall("lamp-1", "gw-1", 1)
        self.sent: list[tuple[str, asyncio.Future]] = []
        self.settled: list = []
        self.peer = SimpleNamespace(
            principal=SimpleNamespace(name="gw-1"),
            journal="0123456789abcdef",
            control=self,
            welcomed=True,
            deadline=lambda left_ms, _=None: Deadline("boot", left_ms),
        )

    def send(self, message):
        """As a sender: the outcome comes when a test sets it."""
        outcome = asyncio.get_running_loop().create_future()
        assert is_command(message) or is_query(message) or is_cancel(message)
        self.sent.append((message.properties["fogline"].removeprefix("journal-"), outcome))
        return outcome

    def connect(self):
        self.commands.connect(self.peer)

    def disconnect(self):
        self.commands.gateways.remove(self.peer)
        for _, outcome in self.sent:
            if not outcome.done():
                outcome.set_exception(Unreachable("it is gone"))

    def submit(self, **change):
        self.commands.submit(direct(**change), self.settled.append)

    async def settle(self, outcome):
        """Settle the message that the gateway got last."""
        self.sent[-1][1].set_result(outcome)
        await self.turn()

    async def turn(self):
        """Let callbacks run."""
        for _ in range(5):
            await asyncio.sleep(0)

    async def commit(self):
        """Commit every change that waits."""
        while not self.shard.changes.empty():
            change = self.shard.changes.get_nowait()
            change.perform(SimpleNamespace(registry=self.truth, writer=SimpleNamespace(write_command=lambda _: None)))()
            await self.turn()

    @property
    def known(self):
        return self.commands.table.registry.get("C1")

    def heir(self) -> "Bench":
        """Another bridge, which has read what is committed."""
        self.commands.close()
        made = Bench()
        made.truth = self.truth
        made.commands.table.learn(self.truth.everything())
        return made


def direct(**change):
    now_ms = int(time.time() * 1000)
    return make_record(accepted_ms=now_ms, expires_ms=now_ms + 600_000, **change)
