"""Commands from an operator to a device and back: bridge, gateway, journal and a real broker."""

import asyncio
from contextlib import asynccontextmanager
from functools import partial
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from fogline.commands.command import CommandState
from fogline.commands.signature import make_key, read_keys
from fogline.errors import Unreachable
from fogline.events.event import Lane
from fogline_cloud.bridge.commands.operators import REGISTRY_S
from fogline_cloud.bridge.peers.peer import GatewayPeer
from fogline_cloud.commands.client.operator import Ask, Operator
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.shard.recovery import read_commands
from fogline_edge.downlink.downlink import Downlink
from fogline_lab.amqp import within
from fogline_lab.clock import pass_time
from fogline_lab.device.command_device import OK, CommandDevice
from fogline_lab.line.line import commandable, gateway, serving
from fogline_lab.waiting import until_not


@asynccontextmanager
async def everything(line):
    """A bridge, a gateway whose device `lamp-1` has been heard of, and an operator."""
    async with (
        commandable(line) as (bridge, outbox, downlink),
        Operator("127.0.0.1", line.port, line.tenant) as op,
    ):
        await within(op.attached(), "the operator cannot attach")
        yield bridge, outbox, downlink, op


async def test_a_command_reaches_the_device_and_its_answer_the_operator(line):
    async with everything(line) as (_, _, downlink, operator):
        device = CommandDevice(downlink)
        downlink.reachable("lamp-1", device)
        for durable in (True, False):
            verdict = await within(operator.request(Ask("lamp-1", "switch", b"{}", durable=durable)), "no answer")
            assert (verdict.state, verdict.status, verdict.data) == (CommandState.SUCCEEDED, 200, b'{"ok":true}')
        assert len(device.ran) == 2


async def test_a_command_to_a_bridge_that_reads_the_registry_waits_for_it(line, monkeypatch):
    async with everything(line) as (bridge, _, downlink, operator):
        device = CommandDevice(downlink)
        downlink.reachable("lamp-1", device)
        for durable in (True, False):
            with monkeypatch.context() as reading:
                reading.setattr(bridge._devices, "_feed", SimpleNamespace(loaded=False))
                asked = asyncio.create_task(operator.request(Ask("lamp-1", "switch", durable=durable)))
                done, _ = await asyncio.wait({asked}, timeout=3 * REGISTRY_S)
            assert not done
            assert (await within(asked, "no answer")).state is CommandState.SUCCEEDED


@pytest.mark.fault("X4")
async def test_the_time_in_which_a_bridge_reads_nothing_counts(line):
    """The bridge begins to read when the command's time to live is over. AMQP's `ttl` would begin then."""
    async with everything(line) as (bridge, _, downlink, operator):
        device = CommandDevice(downlink)
        downlink.reachable("lamp-1", device)
        connections = [peer.connection for peer in bridge.listener.peers if not isinstance(peer, GatewayPeer)]
        for each in connections:
            each.pause_reading()
        asked = [
            asyncio.create_task(operator.request(Ask("lamp-1", "switch", durable=each, ttl_s=2.5))) for each in (True, False)
        ]
        done, _ = await asyncio.wait(asked, timeout=2.6)
        assert not done
        for each in connections:
            each.resume_reading()
        verdicts = [await within(each, "no verdict") for each in asked]
        assert [each.state for each in verdicts] == [CommandState.EXPIRED] * 2
        assert device.ran == []


@pytest.mark.fault("X1", "X4")
async def test_a_durable_command_waits_for_its_device_a_direct_one_does_not(line):
    async with everything(line) as (_, _, downlink, operator):
        direct = await within(operator.request(Ask("lamp-1", "switch", durable=False)), "no answer")
        assert (direct.state, direct.status) == (CommandState.REJECTED, 503)
        waiting = asyncio.create_task(operator.request(Ask("lamp-1", "switch")))
        brief = await within(operator.request(Ask("lamp-1", "switch", ttl_s=0.2)), "it does not expire")
        assert (brief.state, brief.status) == (CommandState.EXPIRED, 408)
        device = CommandDevice(downlink)
        downlink.reachable("lamp-1", device)
        assert (await within(waiting, "it was not run")).state is CommandState.SUCCEEDED
        assert len(device.ran) == 1


async def test_an_unknown_device_is_refused_with_its_name(line):
    async with everything(line) as (_, _, _, operator):
        verdict = await within(operator.request(Ask("nobody", "switch")), "no answer")
        assert (verdict.state, verdict.status) == (CommandState.REJECTED, 404)
        assert "nobody" in verdict.why


async def test_without_an_answer_it_is_in_doubt(line):
    async with everything(line) as (_, _, downlink, operator):
        device = CommandDevice(downlink, answer=None)
        downlink.reachable("lamp-1", device)
        asked = asyncio.create_task(operator.request(Ask("lamp-1", "switch", ttl_s=60)))
        await within(device.came.wait(), "it was not run")
        pass_time(60)
        verdict = await within(asked, "no verdict")
        assert (verdict.state, verdict.status, len(device.ran)) == (CommandState.IN_DOUBT, 504, 1)


@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.fault("X6")
async def test_a_lost_connection_runs_it_again_only_if_that_does_no_harm(line, idempotent):
    async with everything(line) as (_, _, downlink, operator):
        device = CommandDevice(downlink)
        device.tell = "lost"
        downlink.reachable("lamp-1", device)
        asked = asyncio.create_task(operator.request(Ask("lamp-1", "switch", ttl_s=60, idempotent=idempotent)))
        await within(device.came.wait(), "it was not run")
        device.tell = "answer"
        downlink.reachable("lamp-1", device)
        if not idempotent:
            pass_time(60)
        verdict = await within(asked, "no verdict")
        assert verdict.state is (CommandState.SUCCEEDED if idempotent else CommandState.IN_DOUBT)
        assert len(device.ran) == (2 if idempotent else 1)


@pytest.mark.fault("X5")
async def test_an_answer_to_an_operator_that_is_gone_is_kept(line):
    async with everything(line) as (_, _, downlink, operator):
        device = CommandDevice(downlink, answer=None)
        downlink.reachable("lamp-1", device)
        asked = asyncio.create_task(operator.request(Ask("lamp-1", "switch", ttl_s=60)))
        await within(device.came.wait(), "it was not run")
        await operator.__aexit__()
        with pytest.raises(Unreachable):
            await asked
        (command_id,) = device.ran
        downlink.answer("lamp-1", command_id, OK, lambda _: None)
        clients = KafkaClients(line.cloud.kafka)

        def found():
            records = [each for shard in range(2) for each in read_commands(clients, line.tenant, shard)]
            return [(each.id, each.state, each.status) for each in records]

        async def not_over() -> bool:
            return await asyncio.to_thread(found) != [(command_id, CommandState.SUCCEEDED, 200)]

        await until_not(not_over, "its answer is not there under its id")


async def test_a_command_survives_both_ends_and_runs_once(line):
    """The bridge goes before the gateway is there; the gateway goes with the command in its journal."""
    async with everything(line):
        pass
    operator = Operator("127.0.0.1", line.port, line.tenant)
    async with operator:
        asked = asyncio.create_task(operator.request(Ask("lamp-1", "switch", ttl_s=60)))
        async with line.bridge():
            clients = KafkaClients(line.cloud.kafka)

            async def unrecorded() -> bool:
                return not await asyncio.to_thread(
                    lambda: [*map(partial(read_commands, clients, line.tenant), range(2))] != [[], []]
                )

            await until_not(unrecorded, "it was not written down")
        async with line.bridge():
            async with gateway(line) as (outbox, downlink):

                async def not_here() -> bool:
                    return not downlink.counters.received

                await until_not(not_here, "the gateway did not get it")
                await outbox.streams.pending()  # comes after the commit of the journal
            async with gateway(line) as (outbox, downlink):
                device = CommandDevice(downlink)
                downlink.reachable("lamp-1", device)
                verdict = await within(asked, "no verdict", 60)
                assert (verdict.state, len(device.ran)) == (CommandState.SUCCEEDED, 1)
                await line.drained(outbox)
    (reply,) = [each for each in line.records(Lane.REPLY) if dict(each.headers).get("ce_commandid")]
    assert dict(reply.headers)["status"] == b"200"


async def test_a_signing_key_is_replaced_while_commands_go_on(line, folder):
    """The gateway trusts the old key and the new one, then the new one only."""
    made = {name: make_key() for name in ("old", "new")}
    both = read_keys({name: public for name, (_, public) in made.items()}, "test")
    new_only = read_keys({"new": made["new"][1]}, "test")
    states = []
    for signing, trusted in (("old", both), ("new", both), ("new", new_only), ("old", new_only)):
        (folder / signing).write_text(made[signing][0])
        line.cloud = replace(
            line.cloud, commands=replace(line.cloud.commands, signing_key=str(folder / signing), key_id=signing)
        )
        async with serving(line), gateway(line, keys=trusted) as (outbox, downlink):
            device = CommandDevice(downlink)
            downlink.reachable(device.name, device)
            await line.put(outbox, len(states), device=device.name)
            await line.drained(outbox)
            async with Operator("127.0.0.1", line.port, line.tenant) as operator:
                verdict = await within(operator.request(Ask(device.name, "switch", ttl_s=30)), f"no verdict: {operator.why}")
            states.append((verdict.state, "key 'old' is not known here" in verdict.why))
    assert states == [(CommandState.SUCCEEDED, False)] * 3 + [(CommandState.REJECTED, True)]


@pytest.mark.fault("X11")
async def test_a_command_at_which_the_gateway_fails_ends_in_doubt_and_its_connection_goes_on(line, monkeypatch):
    received = Downlink.received

    def stumble(self, command, settle):
        if getattr(command, "name", "") == "reset":
            raise ZeroDivisionError("nobody thought of this")
        received(self, command, settle)

    monkeypatch.setattr(Downlink, "received", stumble)
    line.cloud = replace(line.cloud, commands=replace(line.cloud.commands, grace_s=0.5))
    async with everything(line) as (bridge, _, downlink, operator):
        downlink.reachable("lamp-1", CommandDevice(downlink))
        connection = bridge.gateways.get("gw-1")
        doubted = asyncio.create_task(operator.request(Ask("lamp-1", "reset", ttl_s=2)))
        verdict = await within(operator.request(Ask("lamp-1", "switch")), "no answer")
        assert verdict.state is CommandState.SUCCEEDED
        assert (await within(doubted, "no verdict")).state is CommandState.IN_DOUBT
        assert bridge.gateways.get("gw-1") is connection
