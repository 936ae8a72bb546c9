"""The radio's tasks, where no bus is."""

import asyncio

from fogline.testing.amqp import within
from fogline_edge.adapters.ble.counters import Counters
from fogline_edge.adapters.ble.radio import Radio
from fogline_edge.adapters.ble.supervisor import Limits, Supervisor


async def test_an_error_that_nobody_thought_of_does_not_end_the_supervision(monkeypatch, caplog):
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/nowhere/bus")
    seen, errors, looked = Supervisor.seen, [ValueError("what BlueZ never said before")], asyncio.Event()

    def seen_at_last(supervisor, world, now_s):
        if errors:
            raise errors.pop()
        looked.set()
        return seen(supervisor, world, now_s)

    monkeypatch.setattr(Supervisor, "seen", seen_at_last)
    nothing = {"heard": lambda *_: None, "renewed": lambda: None, "changed": lambda: None}
    radio = Radio(Supervisor(Limits()), ours=[], counters=Counters(), **nothing)
    radio.start()
    try:
        await within(looked.wait(), "nobody looks any more")
    finally:
        await radio.close()
    assert "an error that is not ours" in caplog.text
    assert not errors
