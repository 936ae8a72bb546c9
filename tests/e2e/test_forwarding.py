"""An operator, or a service, at a bridge that does not own the shard: its messages are forwarded, and the replies come back."""

import asyncio

import pytest

from fogline.amqp.driver import connect
from fogline.amqp.engine import Engine
from fogline.amqp.login import PLAIN, Login
from fogline.amqp.outcome import ACCEPTED
from fogline.amqp.scheduler import Share
from fogline.amqp.security import ClientSecurity
from fogline.commands.command import CommandState
from fogline.message import Message
from fogline_cloud.authority.certificates import Role
from fogline_cloud.bridge.peers import forwarding
from fogline_cloud.commands.client.operator import Ask, Operator
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.shard.recovery import read_commands
from fogline_lab.amqp import End, within
from fogline_lab.credentials.authority_folder import PASSWORD, certified
from fogline_lab.device.command_device import CommandDevice
from fogline_lab.line.bridge_pair import two_bridges
from fogline_lab.line.secure_line import secure
from fogline_lab.waiting import until_not

HERE = "127.0.0.1"


async def test_a_command_reaches_the_device_from_either_bridge(line):
    async with two_bridges(line) as pair, pair.gateway() as (downlink, *names):
        device = CommandDevice(downlink)
        downlink.reachable("lamp-1", device)
        for name in names:
            async with Operator(HERE, pair.port(name), line.tenant) as operator:
                for durable in (True, False):
                    verdict = await within(operator.request(Ask("lamp-1", "switch", durable=durable)), f"no answer by {name}")
                    assert (verdict.state, verdict.data) == (CommandState.SUCCEEDED, b'{"ok":true}')
        assert len(device.ran) == 4


async def test_either_bridge_cancels_a_command_and_knows_that_a_device_is_unknown(line):
    async with two_bridges(line) as pair, pair.gateway() as (_, *names):
        for name in names:
            async with Operator(HERE, pair.port(name), line.tenant) as operator:
                verdict = await within(operator.request(Ask("nobody", "switch")), "no answer")
                assert (verdict.status, verdict.why) == (404, "device nobody is not known here: it has sent no event")
                unknown = await within(operator.cancel("0" * 32), "no answer")
                assert (unknown.status, unknown.why) == (404, f"command '{'0' * 32}' is not known here")
                asked = asyncio.create_task(operator.request(Ask("lamp-1", "switch", message_id=f"m-{name}")))
                for _ in range(100):
                    cancelled = await within(operator.cancel(message_id=f"m-{name}"), "no answer")
                    if cancelled.status != 404:  # the command has not arrived
                        break
                assert cancelled.state is CommandState.CANCELLED
                assert (await within(asked, "no verdict")).state is CommandState.CANCELLED


async def test_the_same_message_at_both_bridges_is_one_command(line):
    async with two_bridges(line) as pair, pair.gateway() as (downlink, *names):
        device = CommandDevice(downlink)
        downlink.reachable("lamp-1", device)
        for name in (*names, *names):
            async with Operator(HERE, pair.port(name), line.tenant, name="alice") as operator:
                verdict = await within(operator.request(Ask("lamp-1", "switch", message_id="m-1")), "no answer")
                assert verdict.state is CommandState.SUCCEEDED
        assert len(device.ran) == 1


async def test_a_command_is_cancelled_from_either_bridge(line):
    async with (
        two_bridges(line) as pair,
        pair.gateway() as (downlink, owner, other),
        Operator(HERE, pair.port(other), line.tenant, name="alice") as alice,
        Operator(HERE, pair.port(owner), line.tenant) as bob,
    ):
        asked = asyncio.create_task(alice.request(Ask("lamp-1", "switch", ttl_s=60, message_id="m-1")))
        await until_not(lambda: never_received(downlink), "the gateway does not get it")
        verdict = await within(alice.cancel(message_id="m-1"), "no verdict")
        end = await within(asked, "the operator hears nothing")
        assert (verdict.state, end.state) == (CommandState.CANCELLED, CommandState.CANCELLED)
        for each in (alice, bob):
            assert (await within(each.cancel(end.command_id), "no verdict")).state is CommandState.CANCELLED
            unknown = await within(each.cancel("5f0c"), "no verdict")
            assert (unknown.status, unknown.why) == (404, "command '5f0c' is not known here")


async def never_received(downlink) -> bool:
    return not downlink.counters.received


@pytest.mark.slow
async def test_a_takeover_after_the_command_was_forwarded_has_no_second_effect(line, monkeypatch):
    monkeypatch.setattr(forwarding, "LOOK_S", 0.1)
    async with two_bridges(line) as pair, pair.gateway() as (downlink, owner, other):
        device = CommandDevice(downlink, answer=None)
        downlink.reachable("lamp-1", device)
        async with Operator(HERE, pair.port(other), line.tenant) as operator:
            asked = asyncio.create_task(operator.request(Ask("lamp-1", "switch", ttl_s=60)))
            await within(device.came.wait(), "the command does not arrive")
            await pair.stop(owner)
            downlink.answer("lamp-1", device.ran[0], CommandDevice(downlink).answer, lambda _: None)
            verdict = await within(asked, "no answer after the takeover", 60)
        assert verdict.state is CommandState.SUCCEEDED
        assert len(device.ran) == 1


async def test_an_event_of_a_client_lands_from_either_bridge(line):
    async with two_bridges(line) as pair:
        for number, name in enumerate(pair.bridges):
            assert await within(send_event(pair.port(name), line.tenant, number), "not settled") == ACCEPTED
    assert sorted(await asyncio.to_thread(line.landed)) == [0, 1]


async def send_event(port, tenant, number):
    """Send an event of a device whose shard is the same for every number."""
    end = End()
    connection = await connect(HERE, port, Engine("weather", properties={"tenant": tenant}), end)
    try:
        address = f"telemetry/{tenant}/station-1"
        sender = connection.open_sender(connection.open_session(), "events", address, Share(), {})
        body = b'{"n": %d}' % number
        return await sender.send(Message(body=body.replace(b" ", b""), content_type="application/json"))
    finally:
        connection.abort()


@pytest.mark.slow
async def test_only_a_bridge_may_forward_in_the_name_of_its_peer(line):
    line, site = secure(line)
    async with two_bridges(line) as pair, pair.gateway() as (downlink, owner, other):
        device = CommandDevice(downlink)
        downlink.reachable("lamp-1", device)
        by_password = ClientSecurity(Login(PLAIN, "alice", PASSWORD), site.context())
        for security in (by_password, site.client(Role.OPERATOR, "bob")):
            async with Operator(HERE, pair.port(other), line.tenant, security=security) as operator:
                verdict = await within(operator.request(Ask("lamp-1", "switch")), "no answer")
                assert verdict.state is CommandState.SUCCEEDED
        operators = await asyncio.to_thread(senders, line)
        assert sorted(operators) == [f"client {line.tenant}/alice (password)", f"client {line.tenant}/bob (certificate)"]
        bob = certified(site.files(Role.OPERATOR, "bob"))
        claim = {"tenant": line.tenant, "kind": "client", "proof": "certificate", "forwarded-by": "bridge-1"}
        end = End()
        engine = Engine("alice", hostname=HERE, properties=claim, security=bob)
        connection = await connect(HERE, pair.port(owner), engine, end)
        sender = connection.open_sender(connection.open_session(), "commands", f"command/{line.tenant}", Share(), {})
        assert (
            await within(sender.send(Message(subject="switch", to=f"command/{line.tenant}/lamp-1")), "not settled") == ACCEPTED
        )
        connection.abort()
        operators = await asyncio.to_thread(senders, line)
        assert operators[-1] == f"client {line.tenant}/bob (certificate)"


def senders(line):
    """The operators of all commands, as the records name them."""
    clients = KafkaClients(line.cloud.kafka)
    return [each.operator for shard in range(2) for each in read_commands(clients, line.tenant, shard)]
