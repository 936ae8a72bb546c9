"""A command never gets more than its time to live, counted on the gateway's own clock if that is known (B5)."""

import asyncio

import msgspec
import pytest

from fogline.amqp.outcome import ACCEPTED, rejected
from fogline.commands.command import decode_command
from fogline.errors import Poison
from fogline.events.codec import Beacon, decode_beacon
from fogline.gateway.hello import decode_hello
from fogline.message import Message
from fogline_cloud.access.principal import Principal, PrincipalKind
from fogline_cloud.bridge.peers.peer import GatewayPeer
from fogline_cloud.bridge.peers.queue_budget import QueueBudget
from fogline_cloud.commands.record import encode, left_ms
from fogline_lab.amqp import within
from fogline_lab.bridge.command_records import make_record
from fogline_lab.bridge.command_side import CommandSide, OneShard

TTL_MS = 30_000
WRONG_MS = 600_000


class Control:
    """The gateway's link for commands. `sent`: what went over it."""

    closed = False

    def __init__(self):
        self.sent = []
        self.futures = []

    def send(self, message):
        self.sent.append(decode_command(message))
        self.futures.append(asyncio.get_running_loop().create_future())
        return self.futures[-1]


@pytest.fixture
def clock():
    """A wall clock that a test sets: milliseconds since 1970."""
    return [1_000_000_000_000]


def bridge(clock, shard=None):
    shard = shard or OneShard()
    shard.ready = True
    commands = CommandSide(shard, lambda: clock[0])
    commands.routes.recall("lamp-1", "gw-1", 1)
    return commands


def connect(commands, boot="boot", boottime_ms=5_000):
    principal = Principal(PrincipalKind.GATEWAY, "acme", "gw-1", "asserted")
    peer = GatewayPeer(principal, None, QueueBudget(1, 1), shard_number=0, control=Control(), welcomed=True)
    peer.set_beacon(Beacon(boot, boottime_ms))
    commands.connect(peer)
    return peer


def asked(clock, **other):
    return make_record(accepted_ms=clock[0], expires_ms=clock[0] + TTL_MS, durable=True, **other)


def left(command, boottime_ms=5_000):
    return command.deadline.boottime_ms - boottime_ms


@pytest.mark.parametrize("wrong_ms", [-WRONG_MS, 0, WRONG_MS])
async def test_an_heir_with_a_wrong_clock_gives_no_more_than_the_original_ttl(clock, wrong_ms):
    """B5: its clock 10 minutes behind, a command of 30 s was given 629 s."""
    waiting = asked(clock)
    clock[0] += wrong_ms
    heir = bridge(clock)
    heir.learn(waiting)
    peer = connect(heir)
    (command,) = peer.control.sent
    assert (left(command) <= 0) if wrong_ms > 0 else (0 < left(command) <= TTL_MS)
    heir.close()


async def test_the_time_left_shrinks_across_takeovers_even_if_the_gateway_was_absent(clock):
    waiting = asked(clock)
    clock[0] += 20_000
    heir = bridge(clock)
    heir.learn(waiting)
    peer = connect(heir)
    assert left(peer.control.sent[0]) <= 10_000
    heir.close()


@pytest.mark.parametrize("wrong_ms", [-WRONG_MS, WRONG_MS])
async def test_the_gateways_clock_decides_if_it_is_known_and_not_the_heirs(clock, wrong_ms):
    """B5: the gateway has not rebooted since the command was accepted, so its deadline is known to the millisecond."""
    shard = OneShard()
    first = bridge(clock, shard)
    connect(first)
    first.submit(msgspec.structs.replace(asked(clock), gateway=""), lambda _: None)
    accepted = (await within(shard.changes.get(), "the command is not written")).record
    first.close()
    clock[0] += wrong_ms
    heir = bridge(clock)
    heir.learn(accepted)
    peer = connect(heir, boottime_ms=25_000)
    assert peer.control.sent[0].deadline == accepted.deadline
    assert accepted.deadline.boot_id == "boot"
    assert accepted.deadline.boottime_ms >= 5_000 + TTL_MS
    rebooted = connect(heir, "another boot", 1_000)
    assert rebooted.control.sent[0].deadline.boot_id == "another boot"
    assert left(rebooted.control.sent[0], 1_000) <= TTL_MS
    heir.close()


async def test_a_clock_that_is_set_back_prolongs_no_command_at_the_bridge_that_took_it(clock):
    """A sister of B5: the bridge that took the command counts on a clock that nobody sets."""
    shard = OneShard()
    taker = bridge(clock, shard)
    settled = asyncio.get_running_loop().create_future()
    taker.submit(msgspec.structs.replace(asked(clock), gateway=""), settled.set_result)
    change = await within(shard.changes.get(), "the command is not written")
    change.done(change.record)
    assert await within(settled, "it is not settled") == ACCEPTED
    clock[0] -= WRONG_MS
    peer = connect(taker)
    assert left(peer.control.sent[0]) <= TTL_MS
    taker.close()


@pytest.mark.parametrize(("now_ms", "left"), [(999, 500), (1_000, 500), (1_200, 300), (1_500, 0), (2_000, 0)])
def test_the_time_left_is_between_zero_and_the_ttl(now_ms, left):
    assert left_ms(make_record(accepted_ms=1_000, expires_ms=1_500), now_ms) == left


@pytest.mark.parametrize("boottime", [-1, 2**53 + 1, 2**63 - 1, "7"])
def test_a_beacon_outside_the_range_of_a_clock_is_refused(boottime):
    """A sister of B5: a deadline reckoned from it fits no AMQP long, which failed in the operator's connection."""
    with pytest.raises(Poison):
        decode_beacon(Message(body=b"", properties={"boot": "boot", "boottime": boottime}))
    hello = {"protocol": 1, "version": "1", "gateway": "gw-1", "streams": []}
    body = msgspec.json.encode({**hello, "beacon": {"boot_id": "boot", "boottime_ms": boottime}})
    with pytest.raises(Poison):
        decode_hello(body)


def test_a_boot_id_has_a_bound():
    with pytest.raises(Poison):
        decode_beacon(Message(body=b"", properties={"boot": "b" * 129, "boottime": 1}))


async def test_a_gateways_description_of_a_refusal_is_cut(clock):
    """The description goes to an operator in one frame, and into a record on Kafka."""
    shard = OneShard()
    taker = bridge(clock, shard)
    peer = connect(taker)
    settled = asyncio.get_running_loop().create_future()
    taker.submit(msgspec.structs.replace(asked(clock), gateway="", durable=False), settled.set_result)
    refused = rejected("x" * 100_000, "y" * 100_000)
    peer.control.futures[0].set_result(refused)
    await shard.changes.get()
    change = await within(shard.changes.get(), "its verdict is not written")
    assert len(encode(change.record)) < 10_000
    change.done(change.record)
    assert len(str(await within(settled, "the command is not settled"))) < 2000
    taker.close()
