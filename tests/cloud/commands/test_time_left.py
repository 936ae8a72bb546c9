"""The rest of a command's time to live: never more than was given, and on the gateway's own clock where that is known (B5)."""

import asyncio

import msgspec
import pytest

from cloud.commands.test_dispatch import OneShard
from cloud.commands.test_registry import record
from fogline.amqp.outcome import ACCEPTED, rejected
from fogline.codec import Beacon, decode_beacon
from fogline.command import decode_command
from fogline.errors import Poison
from fogline.hello import decode_hello
from fogline.message import Message
from fogline.principal import Kind, Principal
from fogline.signature import Signer
from fogline.testing.amqp import within
from fogline_cloud.bridge.gateways import GatewayDesk
from fogline_cloud.bridge.guest import Guest
from fogline_cloud.bridge.queue_budget import QueueBudget
from fogline_cloud.commands import dispatch
from fogline_cloud.commands.dispatch import Dispatcher
from fogline_cloud.commands.record import encode, left_ms
from fogline_cloud.commands.routes import Routes
from fogline_cloud.settings import CommandSettings

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
def clock(monkeypatch):
    """A wall clock that a test sets: milliseconds since 1970."""
    now = [1_000_000_000_000]
    monkeypatch.setattr(dispatch, "_now_ms", lambda: now[0])
    return now


def bridge(shard=None):
    shard = shard or OneShard()
    shard.ready = True
    gateways = GatewayDesk(shard, 1, 100.0)
    routes = Routes()
    routes.recall("lamp-1", "gw-1", 1)
    return Dispatcher(shard, gateways, routes, CommandSettings(), Signer())


def gateway(dispatcher, boot="boot", boottime_ms=5_000):
    guest = Guest(
        Principal(Kind.GATEWAY, "acme", "gw-1", "asserted"), None, QueueBudget(1, 1), control=Control(), welcomed=True
    )
    guest.heard(Beacon(boot, boottime_ms))
    dispatcher._gateways._by_name["gw-1"] = guest
    return guest


def asked(clock, **other):
    return record(accepted_ms=clock[0], expires_ms=clock[0] + TTL_MS, durable=True, **other)


def left(command, boottime_ms=5_000):
    return command.deadline.boottime_ms - boottime_ms


@pytest.mark.parametrize("wrong_ms", [-WRONG_MS, 0, WRONG_MS])
async def test_an_heir_whose_clock_is_wrong_gives_no_more_than_the_original_ttl(clock, wrong_ms):
    """B5: its clock 10 minutes behind, a command of 30 s was given 629 s."""
    waiting = asked(clock)
    clock[0] += wrong_ms
    heir = bridge()
    heir._learn(waiting)
    guest = gateway(heir)
    heir._arrived(guest)
    (command,) = guest.control.sent
    assert (left(command) <= 0) if wrong_ms > 0 else (0 < left(command) <= TTL_MS)
    heir.close()


async def test_the_time_left_goes_on_from_takeover_to_takeover_though_the_gateway_was_never_there(clock):
    waiting = asked(clock)
    clock[0] += 20_000
    heir = bridge()
    heir._learn(waiting)
    guest = gateway(heir)
    heir._arrived(guest)
    assert left(guest.control.sent[0]) <= 10_000
    heir.close()


@pytest.mark.parametrize("wrong_ms", [-WRONG_MS, WRONG_MS])
async def test_where_the_gateways_clock_is_known_it_decides_and_not_the_heirs(clock, wrong_ms):
    """B5: the gateway has not rebooted since the command was accepted, so its deadline is known to the millisecond."""
    shard = OneShard()
    first = bridge(shard)
    gateway(first)
    first.submit(msgspec.structs.replace(asked(clock), gateway=""), lambda _: None)
    accepted = (await within(shard.changes.get(), "the command is not written down")).record
    first.close()
    clock[0] += wrong_ms
    heir = bridge()
    heir._learn(accepted)
    guest = gateway(heir, boottime_ms=25_000)
    heir._arrived(guest)
    assert guest.control.sent[0].deadline == accepted.deadline
    assert accepted.deadline.boot_id == "boot"
    assert accepted.deadline.boottime_ms >= 5_000 + TTL_MS
    rebooted = gateway(heir, "another boot", 1_000)
    heir._arrived(rebooted)
    assert rebooted.control.sent[0].deadline.boot_id == "another boot"
    assert left(rebooted.control.sent[0], 1_000) <= TTL_MS
    heir.close()


async def test_a_clock_that_is_set_back_prolongs_no_command_at_the_bridge_that_took_it(clock):
    """A sister of B5: the bridge that took the command counts on a clock that nobody sets."""
    shard = OneShard()
    taker = bridge(shard)
    settled = asyncio.get_running_loop().create_future()
    taker.submit(msgspec.structs.replace(asked(clock), gateway=""), settled.set_result)
    change = await within(shard.changes.get(), "the command is not written down")
    change.done(change.record)
    assert await within(settled, "it is not settled") == ACCEPTED
    clock[0] -= WRONG_MS
    guest = gateway(taker)
    taker._arrived(guest)
    assert left(guest.control.sent[0]) <= TTL_MS
    taker.close()


@pytest.mark.parametrize(("now_ms", "left"), [(999, 500), (1_000, 500), (1_200, 300), (1_500, 0), (2_000, 0)])
def test_what_is_left_lies_between_nothing_and_the_ttl(now_ms, left):
    assert left_ms(record(accepted_ms=1_000, expires_ms=1_500), now_ms) == left


@pytest.mark.parametrize("boottime", [-1, 2**53 + 1, 2**63 - 1, "7"])
def test_a_beacon_that_is_no_clock_is_refused(boottime):
    """A sister of B5: a deadline reckoned from it fits no AMQP long, which failed in the operator's connection."""
    with pytest.raises(Poison):
        decode_beacon(Message(body=b"", properties={"boot": "boot", "boottime": boottime}))
    hello = {"protocol": 1, "version": "1", "gateway": "gw-1", "streams": []}
    said = msgspec.json.encode({**hello, "beacon": {"boot_id": "boot", "boottime_ms": boottime}})
    with pytest.raises(Poison):
        decode_hello(said)


def test_a_boot_id_has_a_bound():
    with pytest.raises(Poison):
        decode_beacon(Message(body=b"", properties={"boot": "b" * 129, "boottime": 1}))


async def test_what_a_gateway_says_of_a_command_that_it_refuses_is_cut(clock):
    """A gateway's word goes to an operator in one frame, and into a record on Kafka."""
    shard = OneShard()
    taker = bridge(shard)
    guest = gateway(taker)
    settled = asyncio.get_running_loop().create_future()
    taker.submit(msgspec.structs.replace(asked(clock), gateway="", durable=False), settled.set_result)
    refused = rejected("x" * 100_000, "y" * 100_000)
    guest.control.futures[0].set_result(refused)
    await shard.changes.get()
    change = await within(shard.changes.get(), "its end is not written down")
    assert len(encode(change.record)) < 10_000
    change.done(change.record)
    assert len(str(await within(settled, "the operator is told nothing"))) < 2000
    taker.close()
