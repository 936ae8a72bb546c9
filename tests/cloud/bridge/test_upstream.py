"""A bridge's connection to another bridge, in the name of a peer."""

import asyncio

import pytest

from fogline.address import CommandResponse
from fogline.amqp.outcome import ACCEPTED, MODIFIED, RELEASED, Condition
from fogline.amqp.security import ClientSecurity
from fogline.message import Message
from fogline_cloud.access.principal import Principal, PrincipalKind
from fogline_cloud.bridge.peers.upstream import FORWARDED_BY, Upstream
from fogline_lab.amqp import End, served, within

HERE = "127.0.0.1"
ALICE = Principal(PrincipalKind.CLIENT, "acme", "alice", "password")
ADDRESS = CommandResponse("acme", "replies")


def connected(port, replies=lambda _: None):
    closed = asyncio.Event()
    upstream = Upstream(ALICE, "bridge-1", ClientSecurity(), replies, lambda _: closed.set())
    upstream.start(HERE, port)
    return upstream, closed


async def test_the_other_bridge_sees_the_peer_and_who_forwards():
    other = End()
    async with served(other) as port:
        upstream, closed = connected(port)
        assert await within(upstream.send(Message(), None), "no outcome") == ACCEPTED
        upstream.close()
        await within(closed.wait(), "it does not end")
    (peer,) = other.peers
    assert (peer.container, peer.properties["kind"], peer.properties["proof"]) == ("alice", "client", "password")
    assert peer.properties[FORWARDED_BY] == "bridge-1"


@pytest.mark.parametrize("was_sent", [True, False])
async def test_a_message_without_an_outcome_is_modified_if_the_other_bridge_may_have_it_and_else_released(was_sent):
    """Without credit no byte of it is sent."""
    other = End(answer=lambda _: other.connection.abort(), credit=1 if was_sent else 0)
    async with served(other) as port:
        upstream, closed = connected(port)
        sent = asyncio.create_task(upstream.send(Message(), None))
        await within(other.link_is_there(1), "no link")
        if not was_sent:
            other.connection.close(Condition("amqp:connection:forced"))
        assert await within(sent, "no outcome") == (MODIFIED if was_sent else RELEASED)
        await within(closed.wait(), "it does not end")
        assert await within(upstream.send(Message(), None), "no outcome") == RELEASED


async def test_what_waits_for_a_bridge_that_is_gone_is_released():
    upstream, closed = connected(1)
    assert await within(upstream.send(Message(), None), "no outcome") == RELEASED
    await within(closed.wait(), "it does not end")


async def test_an_upstream_that_is_closed_at_once_tells_it():
    async with served(End()) as port:
        upstream, closed = connected(port)
        upstream.close()
        await within(closed.wait(), "it does not end")
        assert await within(upstream.send(Message(), None), "no outcome") == RELEASED


async def test_a_reply_without_a_listener_is_released_and_its_link_may_be_refused():
    other = End()
    async with served(other) as port:
        upstream, _ = connected(port)
        upstream.listen(ADDRESS)
        await within(other.link_is_there(2), "no links")
        assert await within(other.sender.send(Message()), "not settled") == RELEASED
        other.connection.refuse_link(other.sender.link, Condition("amqp:not-found"))
        assert await within(upstream.send(Message(), None), "no outcome") == ACCEPTED
        upstream.unlisten(ADDRESS)
        upstream.close()
