"""Open commands take a bounded share of the outbox, and no device takes all of it (G7)."""

import asyncio

import pytest

from fogline.amqp.outcome import ACCEPTED, RESOURCE_LIMIT
from fogline.commands.command import MAX_COMMAND_BYTES
from fogline.events.event import Arrival, Lane, Receipt
from fogline_edge.downlink import budget as module
from fogline_edge.downlink.budget import CommandBudget, size_of
from fogline_lab.commands import make_command
from fogline_lab.device.command_device import CommandDevice
from fogline_lab.gateway.connected_gateway import LIMIT_S, durable_command, offline_gateway

BODY = bytes(MAX_COMMAND_BYTES)
OUTBOX_BYTES = 20_000_000


async def stored(outbox, device, data):
    """Put one event; its receipt."""
    receipt = asyncio.get_running_loop().create_future()
    event = Arrival(
        device=device, channel="t", lane=Lane.TELEMETRY, content_type="application/octet-stream", data=data, adapter="mqtt"
    )
    outbox.port.put(event, receipt.set_result)
    return await asyncio.wait_for(receipt, LIMIT_S)


@pytest.mark.fault("X1")
async def test_commands_for_an_absent_device_leave_room_for_events_and_for_commands_of_others(folder):
    """G7: 75 commands of 256 KiB for one absent device, in an outbox of 20 MB."""
    async with offline_gateway(folder, max_bytes=OUTBOX_BYTES) as gw:
        outcomes = [await gw.receive(durable_command(f"C{number}", data=BODY)) for number in range(75)]
        refused = [each for each in outcomes if each != ACCEPTED]
        assert len(refused) > 70
        assert {each.condition for each in refused} == {RESOURCE_LIMIT}
        assert "the open commands for lamp-1 would take more than" in refused[0].description
        for _ in range(20):
            assert await stored(gw.outbox, "lamp-2", bytes(500_000)) is Receipt.STORED
        device = CommandDevice()
        gw.downlink.reachable("lamp-2", device)
        assert await gw.receive(durable_command("D1", device="lamp-2", data=BODY)) == ACCEPTED
        await device.has(1)
        assert await gw.answer("D1", device="lamp-2") is Receipt.STORED


async def test_ended_command_makes_room_and_a_restart_counts_open_ones(folder):
    async with offline_gateway(folder, max_bytes=OUTBOX_BYTES) as gw:
        assert await gw.receive(durable_command("C1", data=BODY)) == ACCEPTED
    async with offline_gateway(folder, max_bytes=OUTBOX_BYTES) as gw:
        assert (await gw.receive(durable_command("C2", data=BODY))).condition == RESOURCE_LIMIT
        assert await gw.receive(durable_command("C1", data=BODY)) == ACCEPTED
        device = CommandDevice()
        gw.downlink.reachable("lamp-1", device)
        await device.has(1)
        await gw.answer("C1")
        assert await gw.receive(durable_command("C2", data=BODY)) == ACCEPTED


def test_all_devices_together_have_a_budget_and_each_has_a_share_of_it():
    budget = CommandBudget(8 * size_of(make_command(data=BODY)))
    fits = {}
    for number in range(20):
        each = make_command(f"lamp-{number % 5}", data=BODY)
        if budget.refusal(each) is None:
            budget.add(each)
            fits[each.device] = fits.get(each.device, 0) + 1
    assert (sum(fits.values()), max(fits.values())) == (8, 2)
    assert "outbox.max_bytes" in budget.refusal(make_command("lamp-9", data=BODY))
    budget.remove(make_command("lamp-0", data=BODY))
    assert budget.refusal(make_command("lamp-9", data=BODY)) is None


def test_commands_that_are_under_way_count_as_those_that_wait(monkeypatch):
    monkeypatch.setattr(module, "MAX_OPEN", 3)
    monkeypatch.setattr(module, "MAX_OPEN_A_DEVICE", 2)
    budget = CommandBudget(1_000_000)
    for _ in range(2):
        budget.add(make_command())
    assert "2 commands for lamp-1 are open" in budget.refusal(make_command())
    assert budget.refusal(make_command("lamp-2")) is None
    budget.add(make_command("lamp-2"))
    assert "3 commands are open at gateway gw-1" in budget.refusal(make_command("lamp-3"))
