"""Behaviour of everything that may stand between a gateway and its bridges. Its tests subclass `IntermediaryContract`."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import proton
import pytest

from contracts.foreign.clients import Note, Sent
from contracts.foreign.javascript import Rhea
from fogline.amqp.driver import AmqpConnection, connect
from fogline.amqp.engine import Engine
from fogline.amqp.events import Delivery
from fogline.amqp.login import PLAIN, Login
from fogline.amqp.outcome import ACCEPTED, MODIFIED, RELEASED, Condition, Outcome, rejected
from fogline.amqp.scheduler import Share
from fogline.amqp.security import ClientSecurity
from fogline.amqp.sending import Sender
from fogline.amqp.wire import encode
from fogline.errors import Unreachable
from fogline.message import Message
from fogline_lab.amqp import End, within
from fogline_lab.amqp_bytes import RawAmqp, transfer
from fogline_lab.waiting import until

REFUSED = rejected("amqp:not-allowed", "not here")
OUTCOMES = (ACCEPTED, RELEASED, MODIFIED, REFUSED)
MANY = 300
"""More messages than a router grants credit for at once."""
BIG = 60_000
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Behaviour:
    """In which ways an intermediary is a router or a broker, as measured.

    `stores`: it takes messages without a receiver, keeps them over its own end, and sends again what a receiver did not settle.
    `passed_on`: the sender's outcome for each one of the receiver. `begun`, `untouched`: the sender's outcome of messages whose
    receiver ends after and before it got them. `interleaves`: it passes on the messages of a connection's links in turn.
    """

    stores: bool
    passed_on: Mapping[Outcome, Outcome]
    begun: Outcome
    untouched: Outcome
    interleaves: bool


ROUTER = Behaviour(
    stores=False, passed_on={outcome: outcome for outcome in OUTCOMES}, begun=MODIFIED, untouched=RELEASED, interleaves=True
)
BROKER = Behaviour(
    stores=True, passed_on=dict.fromkeys(OUTCOMES, ACCEPTED), begun=ACCEPTED, untouched=ACCEPTED, interleaves=False
)


@dataclass
class Between:
    """An intermediary that runs at `port`. `kill` ends it at once; `start` starts it again, on the same port."""

    port: int
    kill: Callable[[], Awaitable[object]]
    start: Callable[[], Awaitable[object]]


@dataclass
class RawEnd(End):
    """An `End` that keeps the bytes of messages too."""

    raw: list[bytes] = field(default_factory=list)

    def received(self, connection: AmqpConnection, delivery: Delivery, data: bytes) -> None:
        """See `End`."""
        self.raw.append(data)
        super().received(connection, delivery, data)


@asynccontextmanager
async def peer(
    between: Between, end: End | None = None, security: ClientSecurity | None = None
) -> AsyncIterator[tuple[End, AmqpConnection]]:
    """Connect to an intermediary, for the length of a block."""
    end = end or End()
    engine = Engine("peer", hostname="127.0.0.1", properties={"tenant": "acme"}, security=security)
    connection = await connect("127.0.0.1", between.port, engine, end)
    await within(end.is_open.wait(), "the connection does not open")
    try:
        yield end, connection
    finally:
        connection.abort()
        await within(end.is_closed.wait(), "the connection does not end")


def sender(connection: AmqpConnection, address: str, name: str = "") -> Sender:
    """Attach a sending link."""
    return connection.open_sender(connection.open_session(), name or f"s{next(_numbers)}", address, Share(), {})


def receive(connection: AmqpConnection, address: str, credit: int = 1000) -> None:
    """Attach a receiving link."""
    connection.open_receiver(connection.open_session(), f"r{next(_numbers)}", address, credit)


def note(number: int, size: int = 0) -> Message:
    """A durable message with a number in front of its body."""
    return Message(body=b"%08d" % number + bytes(size), durable=True)


def numbers(end: End) -> list[int]:
    """The numbers of the messages that have come."""
    return [int(message.body[:8]) for message in end.messages]


async def has_credit(link: Sender) -> None:
    """Wait for credit."""
    await until(lambda: link.credit > 0, "no credit")


class IntermediaryContract:
    """Subclass it with `behaviour`, and a fixture `standing`: a function that runs a `Between` for the length of a block.

    It may get `users`: passwords by user name.
    """

    behaviour: Behaviour

    @pytest.fixture
    def address(self) -> str:
        """An address that no other test uses."""
        return f"ingest/acme/{next(_numbers)}"

    async def test_message_arrives_with_its_properties_time_to_live_durability_and_priority(self, standing, address):
        native = proton.Message(body=b"x", durable=True, priority=7, ttl=60.0, subject="s", properties={"lane": "alarm"})
        native.body, native.inferred = b"x", True
        async with (
            standing() as between,
            peer(between, RawEnd()) as (end, there),
            peer(between) as (_, here),
        ):
            receive(there, address)
            assert await within(sender(here, address).send_encoded(native.encode()), "no outcome") == ACCEPTED
            await until(lambda: end.raw, "the message does not come")
        found = proton.Message()
        found.decode(end.raw[0])
        assert (found.durable, found.priority, found.subject) == (True, 7, "s")
        assert dict(found.properties) == {"lane": "alarm"}
        assert 0 < found.ttl <= 60
        assert end.messages[0].body == b"x"

    @pytest.mark.parametrize("outcome", OUTCOMES, ids=str)
    async def test_outcome_of_the_receiver_reaches_the_sender(self, standing, address, outcome):
        answers = iter([outcome])
        async with (
            standing() as between,
            peer(between, End(lambda _: next(answers, ACCEPTED))) as (end, there),
            peer(between) as (_, here),
        ):
            receive(there, address)
            told = await within(sender(here, address).send(note(1)), "no outcome")
            await until(lambda: end.messages, "the message does not come")
        assert told == self.behaviour.passed_on[outcome]

    async def test_messages_of_a_link_arrive_in_order_and_once(self, standing, address):
        async with standing() as between, peer(between) as (end, there), peer(between) as (_, here):
            receive(there, address, 10)
            link = sender(here, address)
            told = [link.send(note(each, 1000)) for each in range(MANY)]
            assert set(await within(asyncio.gather(*told), "not all are settled")) == {ACCEPTED}
            await until(lambda: len(end.messages) == MANY, "not all come")
        assert numbers(end) == list(range(MANY))

    async def test_two_receivers_share_an_address_and_each_message_comes_to_one(self, standing, address):
        async with (
            standing() as between,
            peer(between) as (first, one),
            peer(between) as (second, other),
            peer(between) as (_, here),
        ):
            receive(one, address, 20)
            receive(other, address, 20)
            link = sender(here, address)
            await asyncio.gather(*[within(link.send(note(each)), "not settled") for each in range(MANY)])
            await until(lambda: len(first.messages) + len(second.messages) == MANY, "not all come")
        assert sorted(numbers(first) + numbers(second)) == list(range(MANY))
        assert min(len(first.messages), len(second.messages)) > MANY // 10

    async def test_sender_without_a_receiver_has_credit_at_a_broker_only(self, standing, address):
        async with standing() as between, peer(between) as (_, here):
            other, link = sender(here, address), sender(here, f"{address}-b")
            if self.behaviour.stores:
                await has_credit(link)
                assert await within(link.send(note(1)), "not settled") == ACCEPTED
            else:  # what the router did with the second link is seen by the credit of the third
                async with peer(between) as (_, there):
                    receive(there, f"{address}-b")
                    await has_credit(link)
                assert other.credit == 0
            async with peer(between) as (end, there):
                receive(there, f"{address}-b")
                await within(link.send(note(2)), "not settled")
                await until(lambda: 2 in numbers(end), "the message does not come")
        assert numbers(end) == ([1, 2] if self.behaviour.stores else [2])

    async def test_receiver_ends_with_messages_that_it_has_not_settled(self, standing, address):
        async with standing() as between, peer(between) as (_, here):
            async with peer(between, End(lambda _: None)) as (end, there):
                receive(there, address, 2)
                link = sender(here, address)
                told = [link.send(note(each)) for each in range(4)]
                await until(lambda: len(end.messages) == 2, "the messages do not come")
                there.abort()
            outcomes = await within(asyncio.gather(*told), "no outcomes")
            assert outcomes == [self.behaviour.begun] * 2 + [self.behaviour.untouched] * 2
            async with peer(between) as (end, there):
                receive(there, address)
                await within(link.send(note(9)), "not settled")
                await until(lambda: 9 in numbers(end), "the message does not come")
        assert numbers(end) == ([0, 1, 2, 3, 9] if self.behaviour.stores else [9])

    async def test_sender_that_is_cut_within_a_message_leaves_nothing_of_it(self, standing, address):
        async with standing() as between, peer(between) as (end, there), peer(between) as (_, here):
            receive(there, address)
            raw = await RawAmqp.linked(between.port, address)
            await raw.send(transfer(encode(note(1, BIG))[:5000], first=True, more=True))
            raw.close()
            assert await within(sender(here, address).send(note(2)), "not settled") == ACCEPTED
            await until(lambda: end.messages, "the message does not come")
        assert numbers(end) == [2]

    async def test_redirect_and_close_of_a_receiver_reach_no_sender(self, standing, address):
        async with standing() as between, peer(between) as (gateway, here):
            async with peer(between) as (_, there):
                receive(there, address)
                link = sender(here, address)
                assert await within(link.send(note(1)), "not settled") == ACCEPTED
                there.close(Condition("amqp:connection:redirect", "go elsewhere"))
            async with peer(between) as (end, there):
                receive(there, address)
                await within(link.send(note(2)), "not settled")
                await until(lambda: end.messages, "the message does not come")
            assert not gateway.is_closed.is_set()
            assert gateway.link_conditions == []

    async def test_intermediary_is_killed_with_messages_on_their_way(self, standing, address):
        async with standing() as between:
            async with peer(between, End(lambda _: None)) as (end, there), peer(between) as (sending, here):
                receive(there, address, 5)
                link = sender(here, address)
                told = [link.send(note(each)) for each in range(5)]
                await until(lambda: len(end.messages) == 5, "the messages do not come")
                if self.behaviour.stores:
                    assert await within(asyncio.gather(*told), "not settled") == [ACCEPTED] * 5
                await between.kill()
                await within(sending.is_closed.wait(), "the sender's connection does not end")
                await within(end.is_closed.wait(), "the receiver's connection does not end")
            outcomes = await asyncio.gather(*told, return_exceptions=True)
            await between.start()
            async with peer(between) as (end, there), peer(between) as (_, here):
                receive(there, address)
                assert await within(sender(here, address).send(note(9)), "not settled") == ACCEPTED
                await until(lambda: 9 in numbers(end), "the message does not come")
        if self.behaviour.stores:
            assert numbers(end) == [0, 1, 2, 3, 4, 9]
        else:
            assert numbers(end) == [9]
            assert {type(each) for each in outcomes} == {Unreachable}

    async def test_large_messages_of_one_link_do_not_hold_up_another_link(self, standing, address):
        """The frames of the links of one connection are interleaved."""
        async with standing() as between, peer(between) as (end, there), peer(between) as (_, here):
            session = there.open_session()
            for name in ("bulk", "alarm"):
                there.open_receiver(session, name, f"{address}-{name}", 50)
            bulk, alarm = sender(here, f"{address}-bulk"), sender(here, f"{address}-alarm")
            await has_credit(alarm)
            told = [bulk.send(note(each, BIG)) for each in range(20)]
            told.append(alarm.send(note(99)))
            assert set(await within(asyncio.gather(*told), "not all are settled")) == {ACCEPTED}
            await until(lambda: len(end.messages) == 21, "not all come")
        if self.behaviour.interleaves:
            assert numbers(end).index(99) < 20

    async def test_rhea_sends_and_receives(self, standing, address):
        """A client that others wrote: the stand-in speaks AMQP, and not only what our own engine understands."""
        async with standing() as between:
            rhea = Rhea(between.port, "acme")
            async with asyncio.TaskGroup() as group:
                receives = group.create_task(rhea.events(address, 2))
                sends = group.create_task(rhea.send(address, *(Note(each, properties={"device_id": "d"}) for each in "ab")))
        assert sends.result() == [Sent("accepted")] * 2
        assert receives.result() == [("d", "a"), ("d", "b")]

    async def test_wrong_password_is_refused(self, standing):
        async with standing(users={"gw": "secret"}) as between:
            end = End()
            engine = Engine("peer", hostname="127.0.0.1", security=ClientSecurity(Login(PLAIN, "gw", "guess")))
            await connect("127.0.0.1", between.port, engine, end)
            await within(end.is_closed.wait(), "it is not refused")
            assert "password of gw" in end.why
            async with peer(between, security=ClientSecurity(Login(PLAIN, "gw", "secret"))):
                pass
