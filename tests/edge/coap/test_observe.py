"""Commands to devices that observe (RFC 7641)."""

import asyncio
from contextlib import asynccontextmanager

import aiocoap
import pytest

from edge.coap.aiocoap_client import aiocoap_client, send
from edge.coap.client import LIMIT_S, content_format, request
from fogline.commands.command import Reply
from fogline_edge.adapters.coap.wire import CoapMessage, Code, MessageType, Option, uint
from fogline_lab.clock import pass_time
from fogline_lab.commands import MemoryCommands, make_command
from fogline_lab.port import MemoryPort

REGISTER, DEREGISTER = (int(Option.OBSERVE), b""), (int(Option.OBSERVE), b"\x01")


def observe(mid=1, device="lamp-1", how=REGISTER, options=(), **more):
    options = (*options, *((how,) if how else ()))
    return request(f"command//{device}", b"", mid=mid, code=Code.GET, options=options, **more)


@asynccontextmanager
async def observed(listening, dial, message=None, **settings):
    """A device that observes."""
    port, commands = MemoryPort(), MemoryCommands()
    async with listening(port, commands, **settings) as listener:
        with dial(listener) as wire:
            response = await wire.ask(message or observe())
            assert response.code == Code.CONTENT
            yield wire, commands, port, listener


def number_of(message):
    return int.from_bytes(dict(message.options)[int(Option.OBSERVE)])


async def test_aiocoap_observes_gets_commands_in_order_and_answers_them(listening):
    port, commands = MemoryPort(), MemoryCommands()
    async with listening(port, commands) as listener, aiocoap_client() as client:
        host, number = listener.address
        message = aiocoap.Message(code=aiocoap.GET, uri=f"coap://{host}:{number}/command/acme/lamp-1", observe=0)
        asked = client.request(message)
        notifications = aiter(asked.observation)
        async with asyncio.timeout(LIMIT_S):
            first = await asked.response
            assert (first.code, first.payload, first.opt.max_age) == (aiocoap.CONTENT, b"", 900)
            for command_id in ("CMD-1", "CMD-2", "CMD-3"):
                await commands.until(lambda: "lamp-1" in commands.devices, "the device is reachable")
                commands.send(make_command(id=command_id, data=command_id.encode(), content_type="text/plain"))
                notification = await anext(notifications)
                assert notification.payload == command_id.encode()
                assert notification.opt.location_query == ("hono-command=switch",)
                path = "/".join(notification.opt.location_path)
                assert path == f"command_response/acme/lamp-1/{command_id}"
                assert (await send(client, listener, f"{path}?hono-cmd-status=200", b"ok")).code == aiocoap.CHANGED
        assert list(commands.answers) == ["CMD-1", "CMD-2", "CMD-3"]
        assert commands.answers["CMD-3"] == Reply(200, b"ok", "application/octet-stream")
    assert [(each.device, each.ttd_s) for each in port.arrivals] == [("lamp-1", 900)]


async def test_each_notification_has_the_form_of_a_command_and_a_higher_number(listening, dial):
    async with observed(listening, dial) as (wire, commands, _, _):
        numbers = []
        for command_id in (b"CMD-1", b"CMD-2"):
            commands.send(make_command(id=command_id.decode()))
            got = await wire.receive()
            wire.send(CoapMessage(MessageType.ACK, Code.EMPTY, got.mid))
            assert (got.kind, got.code, got.token, got.payload) == (MessageType.CON, Code.CONTENT, b"t", b'{"on":true}')
            path = [(int(Option.LOCATION_PATH), each) for each in (b"command_response", b"acme", b"lamp-1", command_id)]
            observed_as = (int(Option.OBSERVE), dict(got.options)[int(Option.OBSERVE)])
            assert got.options == (observed_as, *path, content_format(50), (Option.LOCATION_QUERY, b"hono-command=switch"))
            numbers.append(number_of(got))
        assert numbers[0] < numbers[1]
        await commands.until(lambda: commands.told == [("taken", "CMD-1"), ("taken", "CMD-2")], "they are taken")


async def test_a_notification_that_is_not_acknowledged_is_lost_and_ends_the_observation(listening, dial):
    async with observed(listening, dial, ack_timeout_s=0.001) as (_, commands, _, _):
        commands.send(make_command())
        await commands.until(lambda: commands.told == [("lost", "CMD-1")], "it is lost")
        assert not commands.devices


async def test_a_device_that_was_restarted_rejects_the_command_which_then_waits_for_it(listening, dial):
    async with observed(listening, dial) as (wire, commands, _, _):
        commands.send(make_command())
        wire.send(CoapMessage(MessageType.RST, Code.EMPTY, (await wire.receive()).mid))
        await commands.until(lambda: commands.told == [("not_sent", "CMD-1")], "it was not sent")
        assert not commands.devices
        await wire.ask(observe(mid=2, token=b"u"))
        commands.send(make_command())
        assert (await wire.receive()).token == b"u"


async def test_a_reset_after_a_retransmission_leaves_the_command_in_doubt(listening, dial):
    """The first copy may have been read before the restart of the device."""
    async with observed(listening, dial) as (wire, commands, _, _):
        commands.send(make_command())
        await wire.receive()
        pass_time(3)
        wire.send(CoapMessage(MessageType.RST, Code.EMPTY, (await wire.receive()).mid))
        await commands.until(lambda: commands.told == [("lost", "CMD-1")], "it is lost")


async def test_a_device_ends_its_observation_and_a_plain_get_changes_nothing(listening, dial):
    async with observed(listening, dial) as (wire, commands, _, _):
        plain = await wire.ask(observe(mid=2, how=None))
        assert (plain.code, plain.options, plain.payload) == (Code.CONTENT, (), b"")
        assert (await wire.ask(observe(mid=3, how=DEREGISTER, token=b"other"))).code == Code.CONTENT
        assert "lamp-1" in commands.devices
        assert (await wire.ask(observe(mid=4, how=DEREGISTER))).options == ()
        assert not commands.devices


async def test_a_device_has_one_observation_the_newest(listening, dial):
    async with observed(listening, dial) as (wire, commands, _, listener):
        with dial(listener) as other:
            await other.ask(observe())
            commands.send(make_command())
            assert (await other.receive()).payload == b'{"on":true}'
            await wire.alive()


async def test_only_so_many_devices_observe(listening, dial):
    async with observed(listening, dial, max_observers=1) as (wire, commands, _, listener):
        refused = await wire.ask(observe(mid=2, device="lamp-2"))
        assert (refused.code, refused.options) == (Code.CONTENT, ())
        assert set(commands.devices) == {"lamp-1"}
        assert listener.counters.observations_over_limit == 1
        again = await wire.ask(observe(mid=3))
        assert dict(again.options)[int(Option.MAX_AGE)] == uint(900)


async def test_an_observation_ends_when_its_time_is_over(listening, dial):
    async with observed(listening, dial) as (_, commands, _, _):
        pass_time(900)
        await commands.until(lambda: not commands.devices, "the device is unreachable")


async def test_a_poll_takes_the_place_of_the_observation(listening, dial):
    async with observed(listening, dial) as (wire, commands, _, _):
        wire.send(request("t//lamp-1", mid=2, query=["hono-ttd=1"], kind=MessageType.NON))
        polled = await wire.receive()
        assert polled.code == Code.CHANGED
        assert not commands.devices


async def test_a_gateway_that_stops_says_so_and_the_device_registers_again(listening, dial):
    async with observed(listening, dial) as (wire, commands, _, listener):
        await listener.close()
        assert (await wire.receive()).code == Code.SERVICE_UNAVAILABLE
        assert not commands.devices
    async with observed(listening, dial) as (wire, commands, _, _):
        commands.send(make_command())
        assert (await wire.receive()).payload == b'{"on":true}'


async def test_a_command_that_is_under_way_when_the_gateway_stops_is_lost(listening, dial):
    async with observed(listening, dial) as (_, commands, _, listener):
        commands.send(make_command())
        await listener.close()
        assert commands.told == [("lost", "CMD-1")]


async def test_an_abandoned_command_is_not_sent_again_and_the_device_goes_on_observing(listening, dial):
    async with observed(listening, dial) as (wire, commands, _, _):
        executor = commands.devices["lamp-1"]
        commands.send(make_command())
        executor.abandon(make_command())
        await wire.receive()
        pass_time(3)
        await wire.alive()
        assert commands.told == []
        assert "lamp-1" in commands.devices


@pytest.mark.parametrize("more", [{}, {"options": [(Option.ACCEPT, b"\x3c")]}])
async def test_a_command_that_does_not_fit_is_refused(listening, dial, more):
    async with observed(listening, dial, observe(**more)) as (_, commands, _, _):
        commands.send(make_command(data=b"x" * 1025))
        assert commands.told == [("refused", "CMD-1")]


async def test_commands_are_observed_with_get_only_and_where_there_are_commands(listening, dial):
    async with listening(MemoryPort()) as listener:
        with dial(listener) as wire:
            assert (await wire.ask(request("c//lamp-1"))).code == Code.METHOD_NOT_ALLOWED
            assert (await wire.ask(observe(mid=2))).code == Code.NOT_FOUND
            assert (await wire.ask(request("c/other/lamp-1", b"", mid=3, code=Code.GET))).code == Code.FORBIDDEN


async def test_a_registration_waits_for_room_like_an_event(listening, dial):
    port, commands = MemoryPort(), MemoryCommands()
    port.hold()
    async with listening(port, commands, ack_delay_s=0.01) as listener:
        with dial(listener) as wire:
            assert await wire.ask(observe()) == CoapMessage(MessageType.ACK, Code.EMPTY, 1)
            assert not commands.devices
            port.release()
            assert (await wire.receive()).code == Code.CONTENT
            await commands.until(lambda: "lamp-1" in commands.devices, "the device is reachable")
