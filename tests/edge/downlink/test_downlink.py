"""Commands at the gateway: the journal on a real file, a device that does as it is told, and restarts between."""

import asyncio
import threading

import msgspec
import pytest

from fogline.amqp.outcome import ACCEPTED, RELEASED, DeliveryState
from fogline.commands.command import Deadline, JournalQuery, digest
from fogline.commands.signature import make_key, read_keys, read_signer
from fogline.events.event import Receipt
from fogline_edge.downlink import budget as module
from fogline_edge.downlink import command_task
from fogline_edge.downlink.command_task import LEAST_LEFT_MS
from fogline_edge.outbox.memory.memory_expiry import REMEMBER_COMMANDS_S
from fogline_lab.clock import pass_time
from fogline_lab.device.command_device import CommandDevice
from fogline_lab.gateway.connected_gateway import durable_command, offline_gateway

LIMIT_S = 60.0


async def test_a_device_that_is_there_gets_it_and_its_answer_is_an_event(folder):
    async with offline_gateway(folder) as gw:
        device = CommandDevice()
        gw.downlink.reachable("lamp-1", device)
        assert await gw.receive(durable_command()) == ACCEPTED
        assert await device.has(1) == ["C1"]
        assert await gw.answer("C1") is Receipt.STORED
        assert await gw.answer("C1") is Receipt.DUPLICATE
        assert await gw.answer("C1", 500) is Receipt.DEAD
        assert await gw.replies(1) == [("C1", "SUCCEEDED", 200)]


async def test_commands_of_one_device_go_one_after_the_other_in_order(folder):
    async with offline_gateway(folder) as gw:
        for name in ("C1", "C2", "C3"):
            await gw.receive(durable_command(name))
        device = CommandDevice()
        gw.downlink.reachable("lamp-1", device)
        for count, name in enumerate(("C1", "C2", "C3"), start=1):
            assert (await device.has(count))[-1] == name
            await gw.answer(name)
        assert [each[0] for each in await gw.replies(3)] == ["C1", "C2", "C3"]


@pytest.mark.fault("X3")
async def test_a_copy_is_accepted_and_not_run_again_another_body_is_a_conflict(folder):
    async with offline_gateway(folder) as gw:
        device = CommandDevice()
        gw.downlink.reachable("lamp-1", device)
        for _ in range(3):
            assert await gw.receive(durable_command()) == ACCEPTED
        await gw.answer("C1")
        assert await gw.receive(durable_command()) == ACCEPTED
        assert (await gw.receive(durable_command(data=b"other"))).condition == "fogline:conflict"
        assert await device.has(1) == ["C1"]


@pytest.mark.fault("X1", "X4")
async def test_late_command_or_direct_command_without_device_is_refused_and_leaves_nothing(folder):
    async with offline_gateway(folder) as gw:
        assert (await gw.receive(durable_command(in_s=-1))).condition == "fogline:expired"
        assert (await gw.receive(durable_command(deadline=Deadline("another boot", 2**50)))).condition == "fogline:expired"
        assert await gw.receive(durable_command(durable=False)) == RELEASED
        assert (await gw.receive(durable_command(gateway="gw-2"))).state is DeliveryState.REJECTED
    async with offline_gateway(folder) as gw:
        device = CommandDevice()
        gw.downlink.reachable("lamp-1", device)
        await gw.receive(durable_command("C9"))
        assert await device.has(1) == ["C9"]


async def test_deadline_beyond_the_journals_memory_is_refused(folder):
    """A copy of it could come after the journal has forgotten it, and would run again."""
    async with offline_gateway(folder) as gw:
        refused = await gw.receive(durable_command(in_s=REMEMBER_COMMANDS_S + 1))
        assert (refused.condition, "8 days" in refused.description) == ("amqp:not-allowed", True)
        assert await gw.receive(durable_command(in_s=REMEMBER_COMMANDS_S - 86_400)) == ACCEPTED


async def test_a_command_that_its_device_could_not_answer_in_time_does_not_begin(folder):
    async with offline_gateway(folder) as gw:
        await gw.receive(durable_command("C1", in_s=60))
        pass_time(60 - LEAST_LEFT_MS / 2000)
        device = CommandDevice()
        gw.downlink.reachable("lamp-1", device)
        assert await gw.replies(1) == [("C1", "EXPIRED", 408)]
        assert device.ran == []


@pytest.mark.fault("X4")
async def test_deadline_expires_waiting_commands_and_leaves_sent_ones_in_doubt(folder):
    async with offline_gateway(folder) as gw:
        await gw.receive(durable_command("C1"))
        device = CommandDevice()
        gw.downlink.reachable("lamp-2", device)
        await gw.receive(durable_command("C2", device="lamp-2"))
        await device.has(1)
        pass_time(60)
        assert sorted(await gw.replies(2)) == [("C1", "EXPIRED", 408), ("C2", "IN_DOUBT", 504)]
        assert device.abandoned == ["C2"]
        assert await gw.answer("C1") is Receipt.DEAD
        assert await gw.answer("C2", device="lamp-2") is Receipt.STORED
        assert (await gw.replies(3))[-1] == ("C2", "SUCCEEDED", 200)


async def test_a_deadline_before_the_journal_has_sending_expires_it(folder, monkeypatch):
    """The disk is slow: the device's adapter does not have the command yet."""
    monkeypatch.setattr(command_task, "LEAST_LEFT_MS", 0)
    async with offline_gateway(folder) as gw:
        await gw.receive(durable_command(in_s=30))
        device, disk = CommandDevice(), threading.Event()
        gw.outbox.port.act(lambda *_: disk.wait(LIMIT_S), lambda _: None, urgent=True)
        gw.downlink.reachable("lamp-1", device)
        pass_time(30)
        async with asyncio.timeout(LIMIT_S):
            while not (gw.downlink.counters.expired or gw.downlink.counters.in_doubt):  # noqa: ASYNC110 - counts give no event
                await asyncio.sleep(0.005)
        disk.set()
        assert await gw.replies(1) == [("C1", "EXPIRED", 408)]
        assert (device.ran, device.abandoned) == ([], [])


async def test_one_way_ends_when_the_device_has_it(folder):
    async with offline_gateway(folder) as gw:
        device = CommandDevice()
        gw.downlink.reachable("lamp-1", device)
        await gw.receive(durable_command(reply=False))
        await device.has(1)
        gw.downlink.taken("C1")
        assert await gw.replies(1) == [("C1", "SUCCEEDED", 202)]


async def test_command_that_was_certainly_not_sent_waits_for_its_device(folder):
    async with offline_gateway(folder) as gw:
        device = CommandDevice()
        gw.downlink.reachable("lamp-1", device)
        await gw.receive(durable_command())
        await device.has(1)
        gw.downlink.not_sent("C1")
        gw.downlink.unreachable("lamp-1", device)
        gw.downlink.reachable("lamp-1", device)
        assert await device.has(2) == ["C1", "C1"]
        gw.downlink.refused("C1", "too big for it")
        assert await gw.replies(1) == [("C1", "REJECTED", 422)]


async def test_an_answer_of_another_device_is_a_dead_letter(folder):
    async with offline_gateway(folder) as gw:
        device = CommandDevice()
        gw.downlink.reachable("lamp-1", device)
        await gw.receive(durable_command())
        await device.has(1)
        assert await gw.answer("C1", device="lamp-2") is Receipt.DEAD
        assert await gw.answer("nobody-knows") is Receipt.DEAD
        assert await gw.answer("C1") is Receipt.STORED


@pytest.mark.parametrize(
    ("asked", "runs", "end"),
    [
        ({}, 1, ("C1", "SUCCEEDED", 200)),
        ({"idempotent": True}, 2, ("C1", "SUCCEEDED", 200)),
        ({"reply": False}, 1, ("C1", "IN_DOUBT", 504)),
    ],
    ids=["awaits the answer", "idempotent", "one-way"],
)
@pytest.mark.fault("X6")
async def test_a_restart_in_sending_never_runs_it_twice(folder, asked, runs, end):
    device = CommandDevice()
    async with offline_gateway(folder) as gw:
        gw.downlink.reachable("lamp-1", device)
        await gw.receive(durable_command(**asked))
        await device.has(1)
    async with offline_gateway(folder) as gw:
        gw.downlink.reachable("lamp-1", device)
        if end[1] == "SUCCEEDED":
            await device.has(runs)
            await gw.answer("C1")
        assert await gw.replies(1) == [end]
        assert len(device.ran) == runs


async def test_command_waiting_across_a_restart_runs_once(folder):
    async with offline_gateway(folder) as gw:
        await gw.receive(durable_command())
    for _ in range(2):
        async with offline_gateway(folder):
            pass
    async with offline_gateway(folder) as gw:
        device = CommandDevice()
        gw.downlink.reachable("lamp-1", device)
        await device.has(1)
        await gw.answer("C1")
    async with offline_gateway(folder) as gw:
        gw.downlink.reachable("lamp-1", device)
        assert await gw.receive(durable_command()) == ACCEPTED
        assert device.ran == ["C1"]


async def test_with_keys_only_signed_commands_are_accepted(folder):
    private, public = make_key()
    async with offline_gateway(folder, read_keys({"k1": public}, "commands.keys")) as gw:
        refused = await gw.receive(durable_command())
        assert (refused.condition, "not known" in refused.description) == ("amqp:not-allowed", True)
        signed = read_signer("k1", private, "here").sign(durable_command())
        forged = msgspec.structs.replace(signed, data=b"forged")
        assert (await gw.receive(forged)).condition == "amqp:not-allowed"
        assert await gw.receive(signed) == ACCEPTED


async def test_a_flood_for_one_device_is_bounded(folder, monkeypatch):
    monkeypatch.setattr(module, "MAX_OPEN_A_DEVICE", 5)
    async with offline_gateway(folder) as gw:
        outcomes = [await gw.receive(durable_command(f"C{number}")) for number in range(7)]
        assert [each.condition for each in outcomes] == [""] * 5 + ["amqp:resource-limit-exceeded"] * 2
        assert await gw.receive(durable_command("D1", device="lamp-2")) == ACCEPTED


def question(command, **change):
    attributes = {"id": command.id, "tenant": command.tenant, "gateway": command.gateway, "digest": digest(command)}
    return JournalQuery(**{**attributes, **change})


async def test_a_bridge_may_ask_whether_the_journal_has_a_command(folder):
    """B3: accepted, released, or a conflict, answered after everything that was received before; nothing is started."""
    async with offline_gateway(folder) as there:
        device = CommandDevice()
        asked = durable_command()
        assert (await there.receive(question(asked))).state is DeliveryState.RELEASED
        there.downlink.reachable("lamp-1", device)
        sent = asyncio.get_running_loop().create_future()
        there.downlink.received(asked, sent.set_result)
        assert await there.receive(question(asked)) == ACCEPTED
        assert await sent == ACCEPTED
        other = await there.receive(question(asked, digest=b"x" * 16))
        assert (other.state, other.condition) == (DeliveryState.REJECTED, "fogline:conflict")
        misdirected = await there.receive(question(asked, gateway="gw-2"))
        assert misdirected.condition == "amqp:not-allowed"
        assert await device.has(1) == [asked.id]
        await there.answer(asked.id)
        assert await there.receive(question(asked)) == ACCEPTED
    assert device.ran == [asked.id]
