"""The radio's tasks."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from bleak.exc import BleakError, BleakGATTProtocolError

from fogline_edge.adapters.ble.counters import BleCounters
from fogline_edge.adapters.ble.radio import radio as radio_module
from fogline_edge.adapters.ble.radio.bleak_manager import error_text
from fogline_edge.adapters.ble.radio.radio import Radio
from fogline_edge.adapters.ble.radio.scanner import Scanner
from fogline_edge.adapters.ble.supervision.bluez_state import BluezState
from fogline_edge.adapters.ble.supervision.supervisor import RadioTimeouts, Supervisor
from fogline_lab.amqp import within
from fogline_lab.ble.bluez import FakeBluez
from fogline_lab.ble.bus import PrivateBus
from fogline_lab.ble.controller import Air
from fogline_lab.ble.objects import HCI
from fogline_lab.ble.peripheral import Peripheral

ADDRESS = "C0:00:00:00:00:10"
NOTHING = {"on_advertisement": lambda *_: None, "on_renew": lambda: None, "on_turn": lambda: None}


async def test_unforeseen_error_does_not_end_the_supervision(monkeypatch, caplog):
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/nowhere/bus")
    observe, errors, looked = Supervisor.observe, [ValueError("what BlueZ never said before")], asyncio.Event()

    def observe_at_last(supervisor, bluez, now_s):
        if errors:
            raise errors.pop()
        looked.set()
        return observe(supervisor, bluez, now_s)

    monkeypatch.setattr(Supervisor, "observe", observe_at_last)
    radio = Radio(Supervisor(RadioTimeouts()), ours=[], counters=BleCounters(), **NOTHING)
    radio.start()
    try:
        await within(looked.wait(), "nobody looks any more")
    finally:
        await radio.close()
    assert "unexpected error" in caplog.text
    assert not errors


class Bluez:
    """An adapter that is there and on."""

    state = BluezState(None, ":1.7", "hci0", powered=True)

    def __init__(self, wanted, changed) -> None:  # noqa: ARG002 - as the real one's
        self._changed = changed

    async def run(self) -> None:
        self._changed()
        await asyncio.Event().wait()


async def test_a_start_that_an_error_interrupts_is_tried_again(monkeypatch, caplog):
    """Only the radio can do so: the supervisor has no deadline while a scanner is being started."""
    errors, started = [ValueError("what BlueZ never said before")], asyncio.Event()

    async def close_stale(*_):
        if errors:
            raise errors.pop()

    async def start_scanner(*_):
        started.set()

    monkeypatch.setattr(radio_module, "Bluez", Bluez)
    monkeypatch.setattr(radio_module, "close_stale_links", close_stale)
    monkeypatch.setattr(Scanner, "start", start_scanner)
    supervisor = Supervisor(RadioTimeouts())
    radio = Radio(supervisor, ours=[], counters=BleCounters(), **NOTHING)
    radio.start()
    try:
        await within(started.wait(), "it stays as it is")
    finally:
        await radio.close()
    assert "unexpected error" in caplog.text
    assert (supervisor.steps.start_failures, supervisor.steps.new_scanner) == (1, 1)


@asynccontextmanager
async def on_the_air(monkeypatch):
    """The BlueZ stand-in, and a device in its range."""
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
    supervisor, counters = Supervisor(RadioTimeouts(silence_s=1)), BleCounters()
    async with on_the_air(monkeypatch) as (bluez, device):
        radio = Radio(supervisor, ours=[ADDRESS], counters=counters, **NOTHING)
        radio.start()
        try:
            await within(bluez.adapter.devices.until_received(), "it is not heard")
            await bluez.links.connect(f"{HCI}/dev_{ADDRESS.replace(':', '_')}")
            await within(device.until_linked(), "it is not connected")
            bluez.adapter.deaf = True
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
    assert error_text(error) == words
