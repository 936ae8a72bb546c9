"""A client of a bridge: one sending link, receiving links, and the end of the connection."""

import asyncio

import pytest

from fogline.amqp.client import AmqpClient, Inbox
from fogline.amqp.driver import open_connections
from fogline.amqp.outcome import ACCEPTED, NOT_FOUND, RELEASED, Condition
from fogline.amqp.security import ClientSecurity
from fogline.connection_clock import CLOCK, DEADLINE, monotonic_ms
from fogline.errors import NotSent, Poison, Unreachable
from fogline.message import Message
from fogline_lab.amqp import End, served, within

HERE = "127.0.0.1"


class Bridge(End):
    """A server that tells its clock."""

    def opened(self, connection, peer):
        self.connection = connection
        self.peers.append(peer)
        connection.accept({CLOCK: monotonic_ms()})
        self.is_open.set()


def new_client():
    return AmqpClient("alice", {"tenant": "acme"}, ClientSecurity())


async def test_messages_arrive_on_the_sending_link_and_come_on_the_receiving_one():
    bridge = Bridge()
    async with served(bridge) as port, new_client() as client:
        await client.open(HERE, port)
        client.attach("commands", "command/acme")
        inbox = Inbox(client, "replies", "command_response/acme/alice", 2)
        assert await within(client.send(Message(subject="switch")), "no outcome") == ACCEPTED
        await within(bridge.link_is_there(2), "no receiving link")
        sent = [bridge.sender.send(Message(subject=f"{number}")) for number in range(3)]
        assert [(await within(inbox.next(), "no message")).subject for _ in range(3)] == ["0", "1", "2"]
        assert await within(asyncio.gather(*sent), "not settled") == [ACCEPTED] * 3
    assert (bridge.peers[0].container, bridge.peers[0].properties) == ("alice", {"tenant": "acme"})
    assert [(each.name, each.address) for each in bridge.links] == [
        ("commands", "command/acme"),
        ("replies", "command_response/acme/alice"),
    ]


async def test_a_message_states_the_end_of_its_time_to_live_on_the_clock_of_the_bridge():
    bridge = Bridge()
    async with served(bridge) as port, new_client() as client:
        await client.open(HERE, port)
        client.attach("commands")
        ends_ms = monotonic_ms() + 60_000
        await within(client.send(Message(ttl_ms=90_000), ends_ms), "no outcome")
    (message,) = bridge.messages
    assert 0 < message.ttl_ms <= 60_000
    assert message.properties[DEADLINE] <= ends_ms + 1


async def test_a_client_that_is_cancelled_while_it_opens_leaves_no_connection():
    """The bridge never answers the open frame."""
    silent = await asyncio.start_server(lambda *_: None, HERE, 0)
    opening = asyncio.create_task(new_client().open(HERE, silent.sockets[0].getsockname()[1]))
    while not open_connections():  # noqa: ASYNC110 - nothing tells it
        await asyncio.sleep(0.001)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    await within(all_closed_but(0), "a connection is left")
    silent.close()


@pytest.mark.parametrize("waits_for", ["outcome", "message", "end"])
async def test_a_client_that_is_cancelled_closes_its_connection(waits_for):
    bridge = Bridge(answer=lambda _: None)
    attached = asyncio.Event()

    async def use(port):
        async with new_client() as client:
            await client.open(HERE, port)
            client.attach("commands")
            inbox = Inbox(client, "replies", "replies", 1)
            attached.set()
            match waits_for:
                case "outcome":
                    await client.send(Message())
                case "message":
                    await inbox.next()
                case "end":
                    await asyncio.wait([client.over])

    async with served(bridge) as port:
        using = asyncio.create_task(use(port))
        await within(attached.wait(), "not attached")
        using.cancel()
        with pytest.raises(asyncio.CancelledError):
            await using
        await within(bridge.is_closed.wait(), "the bridge hears nothing of the close")
        assert bridge.why == "closed by the peer"


async def test_a_cancelled_wait_for_a_message_leaves_the_message_for_the_next():
    bridge = Bridge()
    async with served(bridge) as port, new_client() as client:
        await client.open(HERE, port)
        inbox = Inbox(client, "replies", "replies", 1)
        waiting = asyncio.create_task(inbox.next())
        await within(bridge.link_is_there(1), "no link")
        waiting.cancel()
        sent = bridge.sender.send(Message(subject="late"))
        assert (await within(inbox.next(), "no message")).subject == "late"
        assert await within(sent, "not settled") == ACCEPTED


@pytest.mark.parametrize("ends", ["connection", "sending link", "receiving link"])
async def test_the_end_of_the_connection_or_of_a_link_ends_every_wait_with_the_reason(ends):
    bridge = Bridge(answer=lambda _: None)
    async with served(bridge) as port, new_client() as client:
        await client.open(HERE, port)
        client.attach("commands")
        inbox = Inbox(client, "replies", "replies", 1)
        sent = client.send(Message())
        await within(bridge.link_is_there(2), "no links")
        condition = Condition(NOT_FOUND, "moved")
        if ends == "connection":
            bridge.connection.close(condition)
        else:
            bridge.connection.refuse_link(bridge.links[ends == "receiving link"], condition)
        for waiting in (sent, inbox.next()):
            with pytest.raises(Unreachable):
                await within(waiting, "a wait does not end")
        assert "amqp:not-found: moved" in client.why
        assert client.condition == (None if ends == "connection" else condition)
        with pytest.raises(Unreachable, match="moved"):
            client.receive("more", "more", 1, lambda *_: None)
        with pytest.raises(NotSent):
            await client.send(Message())


async def test_a_receiving_link_that_is_optional_may_be_refused():
    bridge = Bridge()
    async with served(bridge) as port, new_client() as client:
        await client.open(HERE, port)
        link = client.receive("replies", "replies", 1, lambda *_: None, optional=True)
        await within(bridge.link_is_there(1), "no link")
        bridge.connection.refuse_link(bridge.links[0], Condition(NOT_FOUND))
        client.attach("commands")
        assert await within(client.send(Message()), "no outcome") == ACCEPTED
        assert (link.closed, client.why) == (True, "")


async def test_a_message_may_be_settled_later_and_not_after_its_link_was_detached():
    bridge, taken = Bridge(), []
    async with served(bridge) as port, new_client() as client:
        await client.open(HERE, port)
        link = client.receive("replies", "replies", 2, lambda data, settle: taken.append((data, settle)))
        await within(bridge.link_is_there(1), "no link")
        first, second = (bridge.sender.send(Message()) for _ in range(2))
        while len(taken) < 2:  # noqa: ASYNC110 - nothing tells it
            await asyncio.sleep(0.001)
        taken[0][1](RELEASED)
        assert await within(first, "not settled") == RELEASED
        client.detach(link, "no more")
        taken[1][1](ACCEPTED)
        with pytest.raises(Unreachable):
            await within(second, "settled on a link that is gone")


async def test_an_unreadable_message_is_an_error_of_its_own():
    bridge = Bridge()
    async with served(bridge) as port, new_client() as client:
        await client.open(HERE, port)
        inbox = Inbox(client, "replies", "replies", 2)
        await within(bridge.link_is_there(1), "no link")
        bridge.sender.send_encoded(b"\x00")
        bridge.sender.send(Message(subject="next"))
        with pytest.raises((Poison, ValueError)):
            await within(inbox.next(), "no message")
        assert (await within(inbox.next(), "no message")).subject == "next"


async def test_a_client_without_a_connection_sends_nothing_and_its_close_does_nothing():
    async with new_client() as client:
        client.close()
        with pytest.raises(NotSent, match="not connected"):
            client.send(Message())
        with pytest.raises(Unreachable, match="cannot connect"):
            await client.open(HERE, 1)
        assert client.why == ""


async def test_a_client_ends_although_the_bridge_does_not_answer_its_close():
    class Silent(Bridge):
        def opened(self, connection, peer):
            super().opened(connection, peer)
            connection.pause_reading()

    async def use(port):
        async with new_client() as client:
            await client.open(HERE, port)

    async with served(Silent()) as port:
        await within(use(port), "the client waits for a silent bridge")
        await within(all_closed_but(1), "the client's connection is left")


async def all_closed_but(count):
    while len(open_connections()) > count:  # noqa: ASYNC110 - nothing tells it
        await asyncio.sleep(0.001)
