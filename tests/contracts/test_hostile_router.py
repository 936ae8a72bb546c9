"""The hostile router does to messages what its kinds of mischief say, and forwards the others as any router."""

import asyncio

import pytest

from contracts.intermediary_contract import Between, has_credit, numbers, peer, receive, sender
from fogline.amqp.outcome import ACCEPTED, DeliveryState
from fogline.message import Message
from fogline_lab.intermediary.hostile_router import HostileRouter
from fogline_lab.intermediary.mischief import Mischief
from fogline_lab.waiting import until

Q, OTHER = "ingest/acme/0", "ingest/acme/1"


def signed(number):
    """A message with properties, of which one is binary."""
    properties = {"gateway": "gw-1", "sequence": number, "message_signature": b"s"}
    return Message(body=b"%08d" % number, properties=properties)


async def passed(kind, count):
    """Send messages through a router that does this to each. Returns what came at both addresses, and the outcomes."""
    async with (
        HostileRouter() as router,
        peer(Between(router.port, None, None)) as (end, there),
        peer(Between(router.port, None, None)) as (other, elsewhere),
    ):
        receive(there, Q)
        receive(elsewhere, OTHER)
        async with peer(Between(router.port, None, None)) as (_, here):
            link = sender(here, Q)
            await has_credit(link)
            await until(lambda: OTHER in router.enemy.links.at, "the other receiver does not attach")
            router.enemy.kinds, router.enemy.share = [kind], 1.0
            told = [link.send(signed(number)) for number in range(count)]
            await until(lambda: router.enemy.done[kind] == count, "not all came to the router")
            router.enemy.truce()
            last = sender(here, Q).send(signed(99))
            await until(lambda: 99 in numbers(end) and last.done(), "the router does not go on")
            await asyncio.sleep(0)
            outcomes = [each.result() if each.done() else None for each in told]
    return [each for each in end.messages if each.properties["sequence"] != 99], other.messages, outcomes


@pytest.mark.parametrize(
    ("kind", "came"),
    [
        (Mischief.REPLAY, [0, 0, 1, 1]),
        (Mischief.REORDER, [0, 1]),
        (Mischief.DROP, []),
        (Mischief.FALSELY_ACCEPT, []),
        (Mischief.FALSELY_REJECT, []),
        (Mischief.ACCEPT_AND_PASS, [0, 1]),
        (Mischief.MISROUTE, [0, 1]),
    ],
    ids=str,
)
async def test_messages_come_as_often_as_the_kind_of_mischief_says(kind, came):
    here, elsewhere, outcomes = await passed(kind, 2)
    assert sorted(int(each.body) for each in here) == came
    assert [int(each.body) for each in elsewhere] == ([0, 1] if kind is Mischief.MISROUTE else [])
    if kind is Mischief.DROP:
        assert outcomes == [None, None]
    elif kind is Mischief.FALSELY_REJECT:
        assert {each.state for each in outcomes} == {DeliveryState.REJECTED}
    elif kind is Mischief.FALSELY_ACCEPT:
        assert outcomes == [ACCEPTED, ACCEPTED]


@pytest.mark.parametrize(
    ("kind", "differs"),
    [
        (Mischief.ALTER_BODY, lambda each, number: each.body != b"%08d" % number),
        (Mischief.ALTER_PROPERTY, lambda each, number: each.properties != signed(number).properties),
        (Mischief.STRIP, lambda each, _: "message_signature" not in each.properties),
        (Mischief.SWAP_BODIES, lambda each, number: int(each.body) == 1 - number),
    ],
    ids=["alter_body", "alter_property", "strip", "swap_bodies"],
)
async def test_messages_come_altered_as_the_kind_of_mischief_says(kind, differs):
    here, _, _ = await passed(kind, 2)
    assert len(here) == 2
    assert all(differs(each, number) for number, each in enumerate(here))


async def test_forged_message_comes_beside_the_real_one():
    here, _, _ = await passed(Mischief.IMPERSONATE, 1)
    assert [each.properties["gateway"] for each in here] == ["gw-1", "gw-2"]


async def test_old_messages_come_again_even_after_their_connection():
    async with HostileRouter() as router, peer(Between(router.port, None, None)) as (end, there):
        receive(there, Q)
        async with peer(Between(router.port, None, None)) as (_, here):
            await sender(here, Q).send(signed(1))
        assert router.enemy.replay(Q) == 1
        await until(lambda: len(end.messages) == 2, "it does not come again")
    assert numbers(end) == [1, 1]
