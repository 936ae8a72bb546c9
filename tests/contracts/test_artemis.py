"""What a real Artemis does that a router does not: its log-ins, its memory, and what it loses without our settings."""

import asyncio

import pytest

from contracts.intermediary_contract import Between, has_credit, note, numbers, peer, receive, sender
from fogline.amqp.login import PLAIN, Login
from fogline.amqp.outcome import ACCEPTED, RELEASED
from fogline.amqp.security import ClientSecurity
from fogline.message import Message
from fogline_cloud.authority.certificates import Role
from fogline_lab.amqp import End, within
from fogline_lab.credentials.authority_folder import AuthorityFolder
from fogline_lab.intermediary.artemis import Artemis
from fogline_lab.waiting import until

Q = "ingest/acme/0"
MOST_BYTES = 450 * 1024 * 1024
"""A heap of 256 MiB, and what Java needs beside it."""


def at(broker):
    """The place of a broker, for `peer`."""
    return Between(broker.port, kill=broker.kill, start=broker.started)


@pytest.mark.slow
async def test_broker_with_tls_lets_in_certificates_and_passwords_and_nobody_else(folder):
    site = AuthorityFolder(folder, "acme")
    broker = Artemis(folder / "broker", users={"gw": "secret"}, tls=site.files(Role.BRIDGE, "broker"))
    with broker:
        for security in (site.client(Role.GATEWAY, "gw-1"), ClientSecurity(Login(PLAIN, "gw", "secret"), site.context())):
            async with peer(at(broker), security=security) as (_, here):
                assert await within(sender(here, Q).send(note(1)), "no outcome") == ACCEPTED


@pytest.mark.slow
async def test_broker_without_our_settings_accepts_and_loses_a_message_that_has_no_receiver(folder):
    with Artemis(folder / "broker", as_shipped=True) as broker:
        async with peer(at(broker)) as (_, here), peer(at(broker)) as (end, there):
            link = sender(here, Q)
            assert await within(link.send(note(1)), "no outcome") == ACCEPTED
            receive(there, Q)

            async def comes():
                assert await within(link.send(note(2)), "no outcome") == ACCEPTED
                return end.messages

            await until(comes, "no later message comes")
    assert set(numbers(end)) == {2}


@pytest.mark.slow
async def test_broker_keeps_durable_messages_over_its_end_and_loses_others(folder):
    with Artemis(folder / "broker") as broker:
        async with peer(at(broker)) as (_, here):
            link = sender(here, Q)
            for number in range(4):
                message = Message(body=b"%08d" % number, durable=number % 2 == 0)
                assert await within(link.send(message), "no outcome") == ACCEPTED
        await broker.kill()
        await broker.started()
        async with peer(at(broker)) as (end, there):
            receive(there, Q)
            await until(lambda: len(end.messages) == 2, "the messages do not come")
    assert numbers(end) == [0, 2]


@pytest.mark.slow
async def test_message_that_is_released_comes_again_for_ever(folder):
    answers = iter([RELEASED] * 25)
    with Artemis(folder / "broker") as broker:
        async with peer(at(broker), End(lambda _: next(answers, ACCEPTED))) as (end, there), peer(at(broker)) as (_, here):
            receive(there, Q)
            await within(sender(here, Q).send(note(1)), "no outcome")
            await until(lambda: len(end.messages) == 26, "it does not come again")


@pytest.mark.slow
async def test_memory_of_a_broker_without_consumers_is_bounded(folder):
    with Artemis(folder / "broker") as broker:
        async with peer(at(broker)) as (_, here):
            link = sender(here, Q)
            await has_credit(link)
            for first in range(0, 6000, 200):
                told = [link.send(note(each, 50_000)) for each in range(first, first + 200)]
                assert set(await within(asyncio.gather(*told), "not settled")) == {ACCEPTED}
        assert broker.resident_bytes() < MOST_BYTES
        async with peer(at(broker)) as (end, there):
            receive(there, Q)
            await until(lambda: len(end.messages) >= 500, "the messages do not come")
        assert numbers(end)[:500] == list(range(500))
