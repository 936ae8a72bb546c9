"""A desired state on its way, step by step, with a crash of the bridge at any of them: each version has at most one effect.

Kafka is a list of committed records here, and the journal a dictionary. tests/e2e/test_desired_state.py has the real ones.
"""

import asyncio
import json
import time
from random import Random
from types import SimpleNamespace

import pytest

from fogline.amqp.outcome import ACCEPTED
from fogline.commands.cancel import is_cancel
from fogline.commands.command import CommandState, Deadline, Reply, is_command
from fogline.errors import Unreachable
from fogline_cloud.bridge.commands.desired_states import DesiredStates
from fogline_cloud.commands.command_id import CommandIds
from fogline_cloud.commands.record import ended
from fogline_cloud.commands.registry import Registry
from fogline_cloud.devices.device_table import DeviceTable
from fogline_cloud.devices.edits import SET, WANT, DeviceEdit
from fogline_cloud.devices.own_devices import OwnDevices
from fogline_cloud.devices.record import read_key
from fogline_cloud.shard.work.device_changes import DeviceChange
from fogline_lab.bridge.command_side import CommandSide, OneShard

LAMP = "lamp-1"


class World:
    """What outlives a bridge: the committed records, the gateway's journal, and the lamp."""

    def __init__(self):
        self.log: list[tuple[bytes, bytes]] = []
        self.truth = Registry()
        self.journal: dict[str, str] = {}  # the state of each command, by id
        self.states: dict[str, dict] = {}  # the state that each command carries
        self.effects: list[dict] = []

    def take(self, message) -> None:
        """Take a command or a cancellation, as a gateway does."""
        command_id = str(message.message_id)
        if is_cancel(message):
            if self.journal.setdefault(command_id, "CANCELLED") == "QUEUED":
                self.journal[command_id] = "CANCELLED"
        elif command_id not in self.journal:
            self.journal[command_id] = "QUEUED"
            self.states[command_id] = json.loads(message.body)

    def run(self) -> None:
        """Run every command that is queued."""
        for command_id, state in self.journal.items():
            if state == "QUEUED":
                self.effects.append(self.states[command_id])
                self.journal[command_id] = "SUCCEEDED"

    def expire(self) -> None:
        """Let the commands that are queued expire, as far as the gateway has not run them."""
        self.journal |= {each: "EXPIRED" for each, state in self.journal.items() if state == "QUEUED"}


class SimulatedBridge:
    """A bridge that owns the only shard. A test commits, delivers and crashes."""

    def __init__(self, world: World):
        self.world = world
        self.shard = OneShard()
        self.shard.ready = True
        self.side = CommandSide(self.shard)
        self.side.routes.recall(LAMP, "gw-1", 1)
        self.table = DeviceTable()
        self.open = []
        own = OwnDevices()
        for key, value in world.log:
            own.apply(read_key(key), value)
        self.owned = SimpleNamespace(
            devices=own,
            registry=world.truth,
            sightings=SimpleNamespace(table=self.table, forget=lambda *_: None),
            writer=SimpleNamespace(write_device=self.write, write_audit=lambda _: None, write_command=lambda _: None),
        )
        self.side.table.learn(world.truth.everything())
        self.desired = DesiredStates(
            SimpleNamespace(table=self.table, loaded=True),
            self.side.operators._shards,
            self.side.table,
            self.side.operators,
            ids=CommandIds(b"k" * 32),
            tenant="acme",
            ttl_ms=60_000,
            gateway_of=self.side.operators.gateway_of,
        )
        self.desired.start()
        self.fed = 0

    def connect(self):
        peer = SimpleNamespace(
            principal=SimpleNamespace(name="gw-1"),
            journal="0123456789abcdef",
            control=self,
            welcomed=True,
            deadline=lambda left_ms, _=None: Deadline("boot", left_ms),
        )
        self.side.connect(peer)

    def write(self, key, value):
        self.world.log.append((key.encode(), value or b""))

    def send(self, message):
        outcome = asyncio.get_running_loop().create_future()
        if is_command(message) or is_cancel(message):
            self.open.append((message, outcome))
        return outcome

    async def turn(self):
        for _ in range(6):
            await asyncio.sleep(0)

    async def tick(self):
        self.desired.stop()
        self.desired._tick()
        await self.turn()

    async def commit(self, *, told: bool = True):
        """Commit one piece of work. With `told=False` the bridge never learns of it, because it crashes."""
        if not self.shard.changes.empty():
            callback = self.shard.changes.get_nowait().perform(self.owned)
            if told:
                callback()
                await self.turn()

    async def feed(self):
        """Read what is committed."""
        for key, value in self.world.log[self.fed :]:
            self.desired.changed(self.table.apply(key, value))
        self.fed = len(self.world.log)
        await self.turn()

    async def deliver(self, *, told: bool = True):
        """Bring a message to the gateway. With `told=False` its outcome is lost."""
        if self.open:
            message, outcome = self.open.pop(0)
            self.world.take(message)
            if told and not outcome.done():
                outcome.set_result(ACCEPTED)
            await self.turn()

    async def report(self):
        """Have the verdicts of the gateway's journal reach the shard."""
        for command_id, state in self.world.journal.items():
            known = self.world.truth.get(command_id)
            if state != "QUEUED" and known is not None and not known.final:
                verdict = ended(known, CommandState(state), Reply(200), int(time.time() * 1000))
                self.world.truth.change(verdict)
                self.side.table.learn([verdict])
        await self.turn()

    def crash(self):
        self.desired.stop()
        self.side.close()
        for _, outcome in self.open:
            if not outcome.done():
                outcome.set_exception(Unreachable("the bridge is gone"))
                outcome.exception()

    def want(self, number: int):
        body = json.dumps({"desired": {"level": number}, "command": "dim"}).encode()
        self.shard.submit(DeviceChange(DeviceEdit(LAMP, WANT, "alice", body, f"request-{number}"), lambda _: None))


async def settled(bridge: SimulatedBridge) -> None:
    """Let everything take its course."""
    for _ in range(60):
        for step in (bridge.commit, bridge.feed, bridge.deliver, bridge.report, bridge.tick):
            await step()
        bridge.world.run()


async def started(world: World) -> SimulatedBridge:
    """Start a bridge, which knows what is committed before the gateway connects to it."""
    bridge = SimulatedBridge(world)
    await bridge.turn()
    bridge.connect()
    return bridge


async def step(random: Random, bridge: SimulatedBridge) -> SimulatedBridge:
    """Take one step, and return the bridge, another one after a crash."""
    match random.randrange(11):
        case 0 | 1:
            await bridge.commit()
        case 2 | 3:
            await bridge.feed()
        case 4 | 5:
            await bridge.deliver(told=random.random() < 0.7)
        case 6:
            await bridge.report()
        case 7:
            bridge.world.run()
        case 8:
            bridge.world.expire()
        case 9:
            await bridge.tick()
        case 10:
            await bridge.commit(told=random.random() < 0.5)
            bridge.crash()
            bridge = await started(bridge.world)
    return bridge


@pytest.mark.parametrize("seed", range(60))
async def test_each_version_of_a_desired_state_has_one_effect_across_crashes_and_the_newest_is_reached(seed):
    random, world = Random(seed), World()
    bridge = await started(world)
    bridge.shard.submit(DeviceChange(DeviceEdit(LAMP, SET, "alice", b'{"type": "lamp"}'), lambda _: None))
    await bridge.commit()
    wanted = 0
    for _ in range(80):
        if random.random() < 0.1:
            wanted += 1
            bridge.want(wanted)
        bridge = await step(random, bridge)
    wanted += 1
    bridge.want(wanted)
    await settled(bridge)
    bridge.crash()
    levels = [each["level"] for each in world.effects]
    assert levels == sorted(set(levels)), "a version was applied twice, or after a newer one"
    assert levels[-1:] == [wanted], (bridge.table.get(LAMP), world.journal)
    entry = bridge.table.get(LAMP)
    assert (entry.outcome.state, entry.reported.reported) == (CommandState.SUCCEEDED, {"level": wanted})


@pytest.mark.fault("X11")
async def test_a_device_at_whose_desired_state_the_bridge_fails_stops_no_other_device(monkeypatch):
    world, advance = World(), DesiredStates._advance
    bridge = await started(world)

    def stumble(self, entry, desired):
        if entry.name == "bad":
            raise OverflowError("nobody thought of this")
        return advance(self, entry, desired)

    monkeypatch.setattr(DesiredStates, "_advance", stumble)
    for device in ("bad", LAMP):
        bridge.shard.submit(DeviceChange(DeviceEdit(device, SET, "alice", b'{"type": "lamp"}'), lambda _: None))
        body = b'{"desired": {"level": 1}, "command": "dim"}'
        bridge.shard.submit(DeviceChange(DeviceEdit(device, WANT, "alice", body, "r-1"), lambda _: None))
    for _ in range(4):
        await bridge.commit()
    for key, value in world.log:
        bridge.table.apply(key, value)
    bridge.desired._pending = {"bad": None, LAMP: None}
    bridge.fed = len(world.log)
    await settled(bridge)
    bridge.crash()
    assert world.effects == [{"level": 1}]
