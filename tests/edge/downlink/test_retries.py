"""A command that could not be sent is tried again after a pause, and never stops the commands after it (G5)."""

import asyncio

import pytest

from fogline.commands.command import CommandState
from fogline_edge.adapters.ble.counters import BleCounters
from fogline_edge.adapters.ble.gatt.commands import ConnectedDevice, GattCommands
from fogline_edge.downlink import device_queues as module
from fogline_edge.downlink.command_task import MAX_DOUBTS, CommandTask
from fogline_edge.downlink.device_queues import THE_GATEWAY, DeviceQueues
from fogline_lab.ble.gatt_client import LOCK_PROFILE, FakeGattClient
from fogline_lab.clock import pass_time
from fogline_lab.commands import make_command
from fogline_lab.device.command_device import CommandDevice
from fogline_lab.gateway.connected_gateway import durable_command, offline_gateway


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(module, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(module, "LONGEST_PAUSE_S", 0.01)


async def test_unsent_command_is_retried_without_a_report_of_reachability(folder):
    """G5."""
    async with offline_gateway(folder) as gw:
        device = CommandDevice()
        gw.downlink.reachable("lamp-1", device)
        await gw.receive(durable_command("C1"))
        await device.has(1)
        gw.downlink.not_sent("C1")
        assert await device.has(2) == ["C1", "C1"]
        await gw.answer("C1")
        assert await gw.replies(1) == [("C1", "SUCCEEDED", 200)]


@pytest.mark.fault("X4")
async def test_the_end_of_a_command_that_was_put_back_lets_the_next_one_begin(folder, monkeypatch):
    """G5."""
    monkeypatch.setattr(module, "FIRST_PAUSE_S", 3600)
    monkeypatch.setattr(module, "LONGEST_PAUSE_S", 3600)
    async with offline_gateway(folder) as gw:
        device = CommandDevice()
        gw.downlink.reachable("lamp-1", device)
        await gw.receive(durable_command("C1", in_s=30))
        await device.has(1)
        gw.downlink.not_sent("C1")
        await gw.receive(durable_command("C2"))
        pass_time(30)
        assert await gw.replies(1) == [("C1", "EXPIRED", 408)]
        assert await device.has(2) == ["C1", "C2"]


@pytest.mark.fault("X4")
async def test_a_command_of_unknown_outcome_that_expires_before_its_next_attempt_is_in_doubt(folder, monkeypatch):
    """EXPIRED says that the device never saw it."""
    monkeypatch.setattr(module, "FIRST_PAUSE_S", 3600)
    monkeypatch.setattr(module, "LONGEST_PAUSE_S", 3600)
    async with offline_gateway(folder) as gw:
        device = CommandDevice()
        gw.downlink.reachable("lamp-1", device)
        await gw.receive(durable_command("C1", idempotent=True))
        await device.has(1)
        gw.downlink.lost("C1")
        gw.downlink.lost("C1")
        gw.downlink.not_sent("C1")
        pass_time(60)
        assert await gw.replies(1) == [("C1", "IN_DOUBT", 504)]
        assert device.ran == ["C1"]


async def test_an_answer_to_the_first_attempt_ends_a_command_that_waits_for_the_second(folder, monkeypatch):
    monkeypatch.setattr(module, "FIRST_PAUSE_S", 3600)
    monkeypatch.setattr(module, "LONGEST_PAUSE_S", 3600)
    async with offline_gateway(folder) as gw:
        device = CommandDevice()
        gw.downlink.reachable("lamp-1", device)
        await gw.receive(durable_command("C1", idempotent=True))
        await device.has(1)
        gw.downlink.lost("C1")
        await gw.receive(durable_command("C2"))
        await gw.answer("C1")
        assert await device.has(2) == ["C1", "C2"]


async def test_bluetooth_command_without_an_answer_does_not_stop_the_next_one(folder):
    """G5: an idempotent command with a reply, to a characteristic that is written without response."""
    async with offline_gateway(folder) as gw:
        client = FakeGattClient()
        executor = GattCommands(gw.downlink, BleCounters())
        executor.up("lock-1", ConnectedDevice(client, LOCK_PROFILE, asyncio.Event(), lambda: None))
        for command_id, name in (("C1", "shout"), ("C2", "open")):
            await gw.receive(durable_command(command_id, device="lock-1", name=name, data=command_id.encode(), idempotent=True))
        assert await gw.replies(1) == [("C2", "SUCCEEDED", 204)]
        assert client.written == [b"C1"] * MAX_DOUBTS + [b"C2"]
        await executor.close()


async def test_absent_device_leaves_nothing_behind(folder):
    async with offline_gateway(folder) as gw:
        await gw.receive(durable_command("C1"))
        pass_time(60)
        assert await gw.replies(1) == [("C1", "EXPIRED", 408)]
        assert gw.downlink._runner.queues._queues.keys() == {THE_GATEWAY}


def test_pauses_double_up_to_the_longest_and_end_with_the_next_reachable(monkeypatch):
    monkeypatch.setattr(module, "FIRST_PAUSE_S", 1.0)
    monkeypatch.setattr(module, "LONGEST_PAUSE_S", 30.0)
    queues, device, task = DeviceQueues(), CommandDevice(), CommandTask(make_command(), CommandState.SENDING)
    queues.set_reachable("lamp-1", device)
    queues.append(task)
    pauses, now_s = [], 100.0
    for _ in range(7):
        assert queues.next("lamp-1", now_s) is task
        pauses.append(queues.put_back(task, now_s))
        assert queues.next("lamp-1", now_s + pauses[-1] - 0.01) is None
        now_s += pauses[-1]
    assert pauses == [1, 2, 4, 8, 16, 30, 30]
    queues.set_reachable("lamp-1", device)
    assert queues.next("lamp-1", now_s) is task
    assert queues.put_back(task, now_s) == 1
