"""The router's stand-in fails in each way in which a router fails, and does then what the router does."""

import asyncio

from contracts.intermediary_contract import BIG, Between, has_credit, note, numbers, peer, receive, sender
from fogline.amqp.outcome import ACCEPTED, MODIFIED, RELEASED
from fogline.amqp.wire import encode
from fogline_lab.amqp import within
from fogline_lab.amqp_bytes import RawAmqp, transfer
from fogline_lab.intermediary.router import Router
from fogline_lab.intermediary.router_links import LINK_CAPACITY
from fogline_lab.waiting import until

Q = "ingest/acme/0"


def at(router):
    """The place of a router, for `peer`."""
    return Between(router.port, kill=None, start=None)


async def test_credit_is_the_routers_own_and_comes_with_the_first_receiver():
    async with Router() as router, peer(at(router)) as (_, here), peer(at(router)) as (_, there):
        link = sender(here, Q)
        receive(there, Q, 3)
        await has_credit(link)
        assert link.credit == LINK_CAPACITY


async def test_message_whose_receiver_is_out_of_reach_is_released_and_credit_is_drained_until_it_is_found_again():
    async with Router() as router, peer(at(router)) as (end, there), peer(at(router)) as (_, here):
        receive(there, Q)
        link = sender(here, Q)
        await has_credit(link)
        router.part(Q)
        assert await within(link.send(note(1)), "no outcome") == RELEASED
        await until(lambda: link.credit == 0, "the credit is not drained")
        waiting = link.send(note(2))
        router.join(Q)
        assert await within(waiting, "no outcome") == ACCEPTED
        await until(lambda: LINK_CAPACITY - 1 <= link.credit <= LINK_CAPACITY, "the credit does not come back")
    assert numbers(end) == [2]


async def test_router_that_is_frozen_moves_nothing_until_it_goes_on():
    async with Router() as router, peer(at(router)) as (end, there), peer(at(router)) as (_, here):
        receive(there, Q)
        link = sender(here, Q)
        await has_credit(link)
        router.freeze()
        told = link.send(note(1))
        done, _ = await asyncio.wait([told], timeout=0.2)
        assert (done, end.messages) == (set(), [])
        router.thaw()
        assert await within(told, "no outcome") == ACCEPTED


async def test_one_peer_is_cut_off_and_the_other_stays():
    async with Router() as router, peer(at(router)) as (first, _):
        assert router.cut("peer") == 1
        await within(first.is_closed.wait(), "it is not cut off")
        assert router.cut("peer") == 0


async def test_links_of_an_address_are_detached_with_an_error():
    async with Router() as router, peer(at(router)) as (receiving, there), peer(at(router)) as (sending, here):
        receive(there, Q)
        await has_credit(sender(here, Q))
        assert router.detach(Q) == 2
        await until(lambda: receiving.link_conditions and sending.link_conditions, "no detach comes")
        assert {each.name for each in receiving.link_conditions + sending.link_conditions} == {"qd:routed-link-lost"}
        assert not sending.is_closed.is_set()


async def test_router_that_stops_in_order_says_so_and_serves_on_the_same_port_afterwards():
    async with Router() as router:
        async with peer(at(router)) as (end, _):
            await router.stop()
            await within(end.is_closed.wait(), "the connection does not end")
            assert end.why == "amqp:connection:forced: the router shuts down"
        await router.start()
        async with peer(at(router)):
            pass


async def test_messages_are_released_and_modified_as_often_as_was_asked():
    async with Router() as router, peer(at(router)) as (end, there), peer(at(router)) as (_, here):
        receive(there, Q)
        link = sender(here, Q)
        await has_credit(link)
        router.routing.modify_next = router.routing.release_next = 1
        told = [await within(link.send(note(each)), "no outcome") for each in range(3)]
    assert told == [MODIFIED, RELEASED, ACCEPTED]
    assert numbers(end) == [2]


async def test_outcomes_that_are_kept_reach_no_sender_before_the_router_is_killed():
    async with Router() as router, peer(at(router)) as (end, there), peer(at(router)) as (_, here):
        router.routing.keep_outcomes = True
        receive(there, Q)
        told = [sender(here, Q).send(note(each)) for each in range(3)]
        await until(lambda: len(end.messages) == 3, "the messages do not come")
        router.kill()
        assert [type(each).__name__ for each in await asyncio.gather(*told, return_exceptions=True)] == ["Unreachable"] * 3


async def test_message_is_passed_on_as_it_comes_and_aborted_if_its_sender_ends():
    async with Router() as router, peer(at(router)) as (end, there):
        receive(there, Q)
        table = there._engine._table
        raw = await RawAmqp.linked(router.port, Q)
        await raw.send(transfer(encode(note(1, BIG))[:5000], first=True, more=True))
        await until(lambda: table.unfinished_bytes, "its first bytes do not come")
        raw.close()
        await until(lambda: not table.unfinished_bytes, "it is not aborted")
        assert end.messages == []
