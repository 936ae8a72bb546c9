"""The radio's tasks."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from bleak.exc import BleakError, BleakGATTProtocolError

from fogline.testing.amqp import within
from fogline.testing.ble.air import Peripheral
from fogline.testing.ble.bluez import HCI, FakeBluez
from fogline.testing.ble.bus import PrivateBus
from fogline.testing.ble.controller import Air
from fogline_edge.adapters.ble import radio as radio_module
from fogline_edge.adapters.ble.counters import Counters
from fogline_edge.adapters.ble.radio import Radio, shown
from fogline_edge.adapters.ble.supervisor import Limits, Supervisor
from fogline_edge.adapters.ble.world import World

ADDRESS = "C0:00:00:00:00:10"
NOTHING = {"heard": lambda *_: None, "renewed": lambda: None, "changed": lambda: None}


async def test_an_error_that_nobody_thought_of_does_not_end_the_supervision(monkeypatch, caplog):
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/nowhere/bus")
    seen, errors, looked = Supervisor.seen, [ValueError("what BlueZ never said before")], asyncio.Event()

    def seen_at_last(supervisor, world, now_s):
        if errors:
            raise errors.pop()
        looked.set()
        return seen(supervisor, world, now_s)

    monkeypatch.setattr(Supervisor, "seen", seen_at_last)
    radio = Radio(Supervisor(Limits()), ours=[], counters=Counters(), **NOTHING)
    radio.start()
    try:
        await within(looked.wait(), "nobody looks any more")
    finally:
        await radio.close()
    assert "an error that is not ours" in caplog.text
    assert not errors


class Bluez:
    """An adapter that is there and on."""

    world = World(None, ":1.7", "hci0", powered=True)

    def __init__(self, wanted, changed) -> None:  # noqa: ARG002 - as the real one's
        self._changed = changed

    async def run(self) -> None:
        self._changed()
        await asyncio.Event().wait()


async def test_a_start_that_an_error_interrupts_is_tried_again(monkeypatch, caplog):
    """Nobody else would: while something is being started there is no deadline."""
    errors, started = [ValueError("what BlueZ never said before")], asyncio.Event()

    async def close_stale(_):
        if errors:
            raise errors.pop()

    async def start_scanner(_):
        started.set()

    monkeypatch.setattr(radio_module, "Bluez", Bluez)
    monkeypatch.setattr(Radio, "_close_stale", close_stale)
    monkeypatch.setattr(Radio, "_start_scanner", start_scanner)
    supervisor = Supervisor(Limits())
    radio = Radio(supervisor, ours=[], counters=Counters(), **NOTHING)
    radio.start()
    try:
        await within(started.wait(), "it stays as it is")
    finally:
        await radio.close()
    assert "an error that is not ours" in caplog.text
    assert (supervisor.steps.start_failures, supervisor.steps.new_scanner) == (1, 1)


@asynccontextmanager
async def on_the_air(monkeypatch):
    """What stands in for BlueZ, and a device that it hears."""
    bus, air, device = PrivateBus(), Air(), Peripheral("env-1", ADDRESS)
    bluez = FakeBluez(air, bus.address)
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", bus.address)
    await bus.start()
    try:
        await bluez.start()
        await device.start(air)
        yield bluez, device
    finally:
        device.stop()
        bluez.close()
        await bluez.stop()
        await bus.stop()
        bus.close()


async def test_a_link_that_bluez_keeps_when_all_clients_are_made_anew_is_ended(monkeypatch):
    """Such a device does not advertise: it would never be found again."""
    supervisor, counters = Supervisor(Limits(silence_s=1)), Counters()
    async with on_the_air(monkeypatch) as (bluez, device):
        radio = Radio(supervisor, ours=[ADDRESS], counters=counters, **NOTHING)
        radio.start()
        try:
            await within(bluez.until_heard(), "it is not heard")
            await bluez.links.connect(f"{HCI}/dev_{ADDRESS.replace(':', '_')}")
            await within(device.until_linked(), "it is not connected")
            bluez.deaf = True
            await within(device.ended(), "BlueZ keeps its link")
        finally:
            await radio.close()
    assert (counters.stale_links, supervisor.steps.new_clients, supervisor.steps.power_cycle) == (1, 1, 0)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (TimeoutError(), "no answer in time"),
        (BleakGATTProtocolError(3), "Write Not Permitted"),
        (BleakGATTProtocolError(0x9F), "Application-specific Error 0x9F"),
        (BleakError("two\nlines"), "two lines"),
        (EOFError(), "EOFError"),
    ],
)
def test_an_error_is_shown_in_words(error, words):
    """R4."""
    assert shown(error) == words
