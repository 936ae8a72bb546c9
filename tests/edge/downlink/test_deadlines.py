"""At its deadline a command is given up wherever its bytes may be: at the adapter that has it."""

import pytest

from fogline.commands.command import Reply
from fogline_lab.clock import pass_time
from fogline_lab.device.command_device import CommandDevice
from fogline_lab.gateway.connected_gateway import durable_command, offline_gateway


@pytest.mark.fault("X8")
@pytest.mark.parametrize("then", ["it reaches no device", "another adapter reaches the device", "the result is lost"])
async def test_at_the_deadline_the_adapter_that_has_a_command_gives_it_up(folder, then):
    """A CoAP or HTTP device is unreachable from the moment at which the response to its poll is written."""
    async with offline_gateway(folder) as gw:
        device, other = CommandDevice(), CommandDevice()
        gw.downlink.reachable("lamp-1", device)
        await gw.receive(durable_command())
        await device.has(1)
        gw.downlink.unreachable("lamp-1", device)
        if then == "another adapter reaches the device":
            gw.downlink.reachable("lamp-1", other)
        elif then == "the result is lost":
            gw.downlink.lost("C1")
        pass_time(60)
        assert await gw.replies(1) == [("C1", "IN_DOUBT", 504)]
        assert (device.abandoned, other.abandoned) == (["C1"], [])


@pytest.mark.fault("X8")
async def test_a_command_of_a_former_run_is_given_up_at_its_deadline_too(folder):
    """The MQTT session of its device may continue the exchange after a restart of the gateway."""
    async with offline_gateway(folder) as gw:
        device = CommandDevice()
        gw.downlink.reachable("lamp-1", device)
        await gw.receive(durable_command())
        await device.has(1)
    async with offline_gateway(folder) as gw:
        device = CommandDevice()
        gw.downlink.reachable("lamp-1", device)
        pass_time(60)
        assert await gw.replies(1) == [("C1", "IN_DOUBT", 504)]
        assert device.abandoned == ["C1"]


async def test_a_command_that_was_answered_is_not_given_up(folder):
    async with offline_gateway(folder) as gw:
        device = CommandDevice()
        gw.downlink.reachable("lamp-1", device)
        await gw.receive(durable_command())
        await device.has(1)
        gw.downlink.answer("lamp-1", "C1", Reply(200), lambda _: None)
        await gw.receive(durable_command("C2", in_s=90))
        await device.has(2)
        pass_time(90)
        assert [each[:2] for each in await gw.replies(2)] == [("C1", "SUCCEEDED"), ("C2", "IN_DOUBT")]
        assert device.abandoned == ["C2"]
