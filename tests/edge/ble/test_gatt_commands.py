"""Outcomes of commands over connections that fail in many ways, with a client that behaves as bleak's."""

import asyncio

import pytest
from bleak.exc import BleakError, BleakGATTProtocolError

from fogline.commands.command import Deadline
from fogline.errors import SlowDown
from fogline_edge.adapters.ble.counters import BleCounters
from fogline_edge.adapters.ble.gatt.commands import ConnectedDevice, GattCommands
from fogline_edge.machine.boot import beacon
from fogline_lab.ble.gatt_client import ANSWERS, LOCK_PROFILE, FakeGattClient
from fogline_lab.commands import MemoryCommands, make_command


class CrowdedCommands(MemoryCommands):
    """While `crowded`, there is no room for an answer."""

    def __init__(self) -> None:
        super().__init__()
        self.crowded = False
        self._tried = asyncio.Event()

    async def asked(self) -> None:
        """Return once there was no room for one."""
        await self._tried.wait()

    def answer(self, device, command_id, answer, done) -> None:
        if self.crowded:
            self._tried.set()
            raise SlowDown("too much waits for the disk", retry_after_s=0.01)
        super().answer(device, command_id, answer, done)


class Bench:
    """A device that is connected, with what carries commands to it."""

    def __init__(self) -> None:
        self.commands = CrowdedCommands()
        self.client = FakeGattClient()
        self.device = ConnectedDevice(self.client, LOCK_PROFILE, asyncio.Event(), self._alive)
        self.lived = 0
        self.executor = GattCommands(self.commands, BleCounters())
        self.executor.up("lock-1", self.device)

    def _alive(self) -> None:
        self.lived += 1

    def send(self, name: str, command_id: str = "CMD-1") -> None:
        self.commands.send(make_command("lock-1", name, id=command_id, data=b"x", reply=True))

    async def told(self, count: int = 1) -> list[tuple[str, str]]:
        await self.commands.until(lambda: len(self.commands.told) >= count, "nothing is told of the command")
        return self.commands.told


async def test_a_write_that_the_device_responds_to_is_answered():
    bench = Bench()
    bench.send("open")
    assert await bench.told() == [("answer", "CMD-1")]
    assert bench.client.written == [b"x"]


async def test_a_device_that_answers_is_alive_and_one_that_is_only_written_to_may_not_be():
    bench = Bench()
    bench.send("shout", "CMD-1")
    await bench.told()
    assert bench.lived == 0
    bench.send("open", "CMD-2")
    await bench.told(2)
    assert bench.lived == 1
    bench.client.fails = BleakGATTProtocolError(0x80)
    bench.send("open", "CMD-3")
    await bench.told(3)
    assert bench.lived == 2
    bench.device.notified(ANSWERS, b"by itself")
    assert bench.lived == 3


async def test_command_on_an_ended_link_was_not_sent():
    """The link has just ended, and bleak has forgotten the services."""
    bench = Bench()
    bench.client.known = False
    bench.send("open")
    assert await bench.told() == [("not_sent", "CMD-1")]
    assert bench.client.written == []


async def test_an_answer_outlives_the_link_while_there_is_no_room_for_it():
    bench = Bench()
    bench.commands.crowded = True
    bench.send("open")
    await bench.commands.asked()
    await bench.executor.down("lock-1", bench.device)
    assert bench.commands.told == []
    bench.commands.crowded = False
    assert await bench.told() == [("answer", "CMD-1")]


async def test_an_answer_for_which_there_is_no_room_before_the_end_is_lost():
    bench = Bench()
    bench.commands.crowded = True
    bench.send("open")
    await bench.commands.asked()
    await bench.executor.close()
    assert bench.commands.told == [("lost", "CMD-1")]


async def test_a_command_whose_link_ends_before_the_device_answers_is_lost():
    bench = Bench()
    bench.send("ask")
    await bench.client.wrote.wait()
    await bench.executor.down("lock-1", bench.device)
    assert bench.commands.told == [("lost", "CMD-1")]


async def test_command_awaiting_a_notification_waits_while_the_characteristic_is_read():
    bench = Bench()
    with bench.device.reading(ANSWERS):
        bench.send("ask")
        await asyncio.sleep(0)
        assert not bench.device.awaits(ANSWERS)
        bench.device.notified(ANSWERS, b"the echo")
        assert bench.client.written == []
    await bench.client.wrote.wait()
    assert bench.device.awaits(ANSWERS)
    bench.device.notified(ANSWERS, b"the answer")
    await bench.told()
    assert bench.commands.answers["CMD-1"].data == b"the answer"
    assert not bench.device.awaits(ANSWERS)


async def test_failed_write_awaits_no_answer():
    bench = Bench()
    bench.client.fails = BleakError("no")
    bench.send("ask")
    assert await bench.told() == [("lost", "CMD-1")]
    assert not bench.device.awaits(ANSWERS)


async def test_a_command_whose_link_ends_before_it_begins_was_not_sent():
    bench = Bench()
    bench.send("open")
    await bench.executor.down("lock-1", bench.device)
    assert bench.commands.told == [("not_sent", "CMD-1")]
    assert bench.client.written == []


async def test_unforeseen_error_ends_the_command_too(caplog):
    bench = Bench()
    bench.client.fails = ZeroDivisionError("?")
    bench.send("open")
    assert await bench.told() == [("lost", "CMD-1")]
    assert "command CMD-1 to lock-1: ZeroDivisionError" in caplog.text


async def test_command_without_a_waiting_client_ends_with_its_link():
    """A late notification must not be the answer to the next command."""
    bench = Bench()
    bench.send("ask")
    await bench.client.wrote.wait()
    bench.executor.abandon(make_command("lock-1", "ask"))
    assert bench.device.over.is_set()
    bench.send("ask", "CMD-2")
    bench.device.notified(ANSWERS, b"to the first")
    assert sorted(await bench.told(2)) == [("lost", "CMD-1"), ("not_sent", "CMD-2")]
    assert bench.client.written == [b"x"]


@pytest.mark.parametrize(
    "error",
    [BleakError("no"), TimeoutError(), BleakGATTProtocolError(0x00), ZeroDivisionError("?")],
    ids=["refused by BlueZ", "not in time", "the link ended", "unforeseen"],
)
async def test_a_write_that_fails_ends_the_link(error):
    """A repetition waits until the device is reachable again. Without the end of the link it would wait for ever."""
    bench = Bench()
    bench.client.fails = error
    bench.send("open")
    assert await bench.told() == [("lost", "CMD-1")]
    assert bench.device.over.is_set()


async def test_a_command_that_ends_unsent_or_answered_ends_no_link():
    bench = Bench()
    bench.send("open", "CMD-1")
    bench.executor.abandon(make_command("lock-1", "open"))
    assert await bench.told() == [("not_sent", "CMD-1")]
    assert not bench.device.over.is_set()
    bench.client.fails = BleakGATTProtocolError(0x80)
    bench.send("open", "CMD-2")
    await bench.told(2)
    bench.client.fails = None
    bench.commands.crowded = True
    bench.send("open", "CMD-3")
    await bench.commands.asked()
    bench.executor.abandon(make_command("lock-1", "open", id="CMD-3"))
    assert await bench.told(3) == [("not_sent", "CMD-1"), ("answer", "CMD-2"), ("lost", "CMD-3")]
    assert not bench.device.over.is_set()


async def test_a_command_that_waits_for_a_read_until_its_deadline_is_not_written():
    now = beacon()
    late = make_command("lock-1", "ask", data=b"x", deadline=Deadline(now.boot_id, now.boottime_ms + 20))
    bench = Bench()
    with bench.device.reading(ANSWERS):
        bench.commands.send(late)
        while late.deadline.is_ahead(beacon):  # noqa: ASYNC110 - the clock has no event
            await asyncio.sleep(0.005)
    assert await bench.told() == [("not_sent", "CMD-1")]
    assert bench.client.written == []
    assert not bench.device.awaits(ANSWERS)
