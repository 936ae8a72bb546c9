"""Devices that sleep: durable commands wait at the gateway, and come in their order when the device speaks."""

import asyncio
from contextlib import asynccontextmanager

import aiocoap
import pytest

from e2e.http_device import http_device
from edge.coap.aiocoap_client import aiocoap_client
from edge.coap.client import Wire, request
from fogline.commands.command import CommandState
from fogline_cloud.commands.client.operator import Ask, Operator
from fogline_edge.adapters.coap.listener import CoapListener
from fogline_edge.adapters.coap.wire import CoapMessage, Code, MessageType, Option
from fogline_edge.settings import CoapSettings
from fogline_lab.amqp import within
from fogline_lab.line.line import commandable
from fogline_lab.waiting import until_not

COUNT = 3


@asynccontextmanager
async def coap(outbox, downlink):
    listener = CoapListener(outbox.port, CoapSettings(port=0, ack_timeout_s=0.5), downlink)
    await listener.start()
    try:
        yield "{}:{}".format(*listener.address)
    finally:
        await listener.close()


async def told(client, url, payload=b"1", code=aiocoap.PUT):
    return await within(client.request(aiocoap.Message(code=code, uri=url, payload=payload)).response, "no response")


async def by_observing(outbox, downlink, take):
    """A real client of others, aiocoap."""
    async with coap(outbox, downlink) as address, aiocoap_client() as client:
        asked = client.request(aiocoap.Message(code=aiocoap.GET, uri=f"coap://{address}/command//lamp-1", observe=0))
        notifications = aiter(asked.observation)
        await within(asked.response, "it is not registered")
        for _ in range(COUNT):
            command = await within(anext(notifications), "no command")
            take(command.payload)
            path = "/".join(command.opt.location_path)
            assert (await told(client, f"coap://{address}/{path}?hono-cmd-status=200")).code == aiocoap.CHANGED


async def by_asking(outbox, downlink, take):
    async with coap(outbox, downlink) as address, aiocoap_client() as client:
        for _ in range(COUNT):
            command = await told(client, f"coap://{address}/t//lamp-1?hono-ttd=20")
            take(command.payload)
            path = "/".join(command.opt.location_path)
            assert (await told(client, f"coap://{address}/{path}?hono-cmd-status=200")).code == aiocoap.CHANGED


async def by_http(outbox, downlink, take):
    async with http_device(outbox, downlink) as device:
        for _ in range(COUNT):
            command = await device.post("/t//lamp-1", params={"hono-ttd": 20}, json={"n": 2})
            take(command.content)
            path = f"/command/res//lamp-1/{command.headers['hono-cmd-req-id']}"
            assert (await device.post(path, params={"hono-cmd-status": 200}, json={})).status_code == 202


async def sent(operator, downlink, count):
    """Send commands one after the other; returns the tasks that wait for their verdicts."""
    waiting = []
    for number in range(count):
        waiting.append(asyncio.create_task(operator.request(Ask("lamp-1", "dim", b"%d" % number))))

        async def not_there(number: int = number) -> bool:
            return downlink.counters.received <= number

        await until_not(not_there, "the gateway does not get it")
    return waiting


@pytest.mark.parametrize("speaks", [by_observing, by_asking, by_http])
async def test_waiting_commands_are_delivered_in_order_when_the_device_reports(line, speaks):
    async with commandable(line) as (_, outbox, downlink), Operator("127.0.0.1", line.port, line.tenant) as operator:
        waiting = await sent(operator, downlink, COUNT)
        seen = []
        await speaks(outbox, downlink, seen.append)
        verdicts = await within(asyncio.gather(*waiting), "no verdicts")
    assert seen == [b"0", b"1", b"2"]
    assert {each.state for each in verdicts} == {CommandState.SUCCEEDED}


async def test_a_command_that_a_restarted_device_rejects_waits_for_its_next_registration_and_runs_once(line):
    observe = request("command//lamp-1", b"", code=Code.GET, options=[(int(Option.OBSERVE), b"")])
    async with (
        commandable(line) as (_, outbox, downlink),
        Operator("127.0.0.1", line.port, line.tenant) as operator,
        coap(outbox, downlink) as address,
    ):
        host, _, port = address.rpartition(":")
        before, after = Wire((host, int(port))), Wire((host, int(port)))
        assert (await before.ask(observe)).code == Code.CONTENT
        (waiting,) = await sent(operator, downlink, 1)
        before.send(CoapMessage(MessageType.RST, Code.EMPTY, (await before.receive()).mid))
        assert (await after.ask(observe)).code == Code.CONTENT
        command = await after.receive()
        after.send(CoapMessage(MessageType.ACK, Code.EMPTY, command.mid))
        path = "/".join(value.decode() for option, value in command.options if option == Option.LOCATION_PATH)
        answered = await after.ask(request(path, b"", mid=2, query=["hono-cmd-status=200"]))
        verdict = await within(waiting, "no verdict")
        before.raw.close()
        after.raw.close()
    assert (command.payload, answered.code, verdict.state) == (b"0", Code.CHANGED, CommandState.SUCCEEDED)
