"""Recognition of retransmissions after a restart of the gateway, the machine, or also the device."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from edge.outbox.machine import COAP_S, Machine, confirmable, counted, settings
from fogline.events.event import Receipt
from fogline_edge.outbox.outbox import Outbox
from fogline_lab.amqp import within
from fogline_lab.clock import RIGHT_NS
from fogline_lab.events import make_arrival


def again():
    """A PUBLISH that an MQTT client retransmits, because it was not acknowledged."""
    return make_arrival(data=b"21.5", slot=b"mqtt", again=True)


@pytest.mark.parametrize("first", [counted(0), confirmable()], ids=["counter", "coap"])
@pytest.mark.parametrize("on_for_s", [0, 1, 59, 61, 3600])
@pytest.mark.fault("D4")
async def test_the_first_reading_after_a_power_cut_is_kept_however_it_looks(folder, first, on_for_s):
    """Device and gateway lose power together; the device's counter starts at the same value, with an equal payload."""
    machine = Machine(folder)
    outbox = Outbox.open(settings(folder), clock=machine.clock)
    machine.clock.go_on(on_for_s)
    assert await machine._put(outbox, first) is Receipt.STORED
    await outbox.close()
    for _ in range(3):
        machine.clock.reboot(RIGHT_NS)
        assert await machine.hears(first) == [Receipt.STORED]


@pytest.mark.parametrize("resend", [counted(7), confirmable()], ids=["counter", "coap"])
@pytest.mark.fault("C2", "D2")
async def test_in_one_boot_a_resend_is_known_for_as_long_as_its_window_lasts(folder, resend):
    machine = Machine(folder)
    window_s = COAP_S if resend.retransmission else 60
    assert await machine.hears(resend) == [Receipt.STORED]
    machine.clock.go_on(window_s)
    assert await machine.hears(resend) == [Receipt.DUPLICATE]
    machine.clock.go_on(1)
    assert await machine.hears(resend) == [Receipt.STORED]


@pytest.mark.fault("D1")
async def test_a_marked_resend_is_known_after_power_cuts_too(folder):
    machine = Machine(folder)
    assert await machine.hears(make_arrival(data=b"21.5", slot=b"mqtt")) == [Receipt.STORED]
    for _ in range(20):
        machine.clock.reboot(RIGHT_NS)
        assert await machine.hears(again()) == [Receipt.DUPLICATE]


DIES = """
import asyncio, os, signal, sys
sys.path[:0] = {path!r}
from pathlib import Path
from edge.outbox.machine import Machine, confirmable, counted, settings
from fogline_edge.outbox.outbox import Outbox

async def live():
    machine = Machine(Path({folder!r}))
    outbox = Outbox.open(settings(machine.folder))
    for each in (counted(7), confirmable()):
        await machine._put(outbox, each)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(live())
"""


@pytest.mark.fault("C2", "D2")
async def test_a_crash_in_the_same_boot_forgets_nothing(folder):
    program = DIES.format(path=[str(Path(__file__).parents[2])], folder=str(folder))
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, env=os.environ.copy())
    assert await within(process.wait(), "it does not end", 60) == -signal.SIGKILL
    machine = Machine(folder)
    outbox = Outbox.open(settings(folder))
    told = [await machine._put(outbox, each) for each in (counted(7), confirmable())]
    await outbox.close()
    assert told == [Receipt.DUPLICATE] * 2
