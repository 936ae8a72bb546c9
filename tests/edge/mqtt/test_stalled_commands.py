"""A client that stops taking commands never stops the commands after its own: listener, journal and outbox are real (G5)."""

import pytest

from fogline_edge.adapters.mqtt.protocol.packets import Ack, Publish
from fogline_edge.adapters.mqtt.protocol.primitives import PacketType
from fogline_edge.adapters.mqtt.protocol.properties import Properties
from fogline_lab.clock import pass_time
from fogline_lab.credentials.mosquitto_passwords import password_file
from fogline_lab.gateway.connected_gateway import durable_command, offline_gateway
from fogline_lab.waiting import eventually

FILTER = "command///req/#"
ONE_AT_A_TIME = {"properties": Properties(receive_maximum=1), "username": "hub", "password": b"one"}


def users(folder):
    """`hub` may speak for any device."""
    return {"users": password_file(folder, hub="one", **{"lamp-1": "two"}), "acl": {"hub": ["*"]}}


@pytest.mark.fault("X4")
async def test_a_command_expires_unsent_and_the_next_one_of_its_device_is_sent(folder, listening, dial):
    """G5: receive maximum 1, and C1 has no PUBACK. So C2 is never sent; its end lets C3 follow."""
    async with (
        offline_gateway(folder) as gw,
        listening(gw.outbox.port, gw.downlink, **users(folder)) as listener,
        dial(listener, "hub", **ONE_AT_A_TIME) as (wire, _),
    ):
        await wire.subscribe("command//lamp-2/req/#", "command//lamp-1/req/#")
        await gw.receive(durable_command("C1", device="lamp-2"))
        silent = await wire.receive()
        await gw.receive(durable_command("C2", in_s=30))
        await eventually(lambda: listener.counters.commands == 2, "the listener has it")
        pass_time(30)
        assert await gw.replies(1) == [("C2", "EXPIRED", 408)]
        await gw.receive(durable_command("C3"))
        await wire.send(Ack(kind=PacketType.PUBACK, packet_id=silent.packet_id, code=0))
        assert "/C3/" in (await wire.receive()).topic


async def test_a_command_that_waited_in_the_newest_connection_goes_through_the_older_one(folder, listening, dial):
    """G5: two connections take commands for lamp-1, and the newest ends with one that it had not sent."""
    async with (
        offline_gateway(folder) as gw,
        listening(gw.outbox.port, gw.downlink, **users(folder)) as listener,
        dial(listener, "older", username="lamp-1", password=b"two") as (older, _),
    ):
        await older.subscribe(FILTER)
        async with dial(listener, "hub", **ONE_AT_A_TIME) as (newest, _):
            await newest.subscribe("command//lamp-2/req/#", "command//lamp-1/req/#")
            await gw.receive(durable_command("C1", device="lamp-2"))
            assert isinstance(await newest.receive(), Publish)
            await gw.receive(durable_command("C2"))
            await eventually(lambda: listener.counters.commands == 2, "the listener has both")
        assert "/C2/" in (await older.receive()).topic
