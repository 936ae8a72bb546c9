"""Commands to devices that ask, and to devices that serve."""

import asyncio
import socket
from contextlib import asynccontextmanager

import aiocoap
import pytest
from aiocoap import resource

from edge.coap.client import LIMIT_S, content_format, request
from fogline.commands.command import Reply
from fogline.errors import Misconfigured
from fogline.events.event import Receipt
from fogline_edge.adapters.coap import command_client, message_layer
from fogline_edge.adapters.coap.listener import CoapListener
from fogline_edge.adapters.coap.wire import CoapMessage, Code, MessageType, Option
from fogline_edge.settings import CoapSettings, ServingSettings
from fogline_lab.clock import pass_time
from fogline_lab.commands import MemoryCommands, make_command
from fogline_lab.port import MemoryPort


def ask(mid=1, seconds=60, **more):
    return request("telemetry/acme/lamp-1", mid=mid, **{"query": [f"hono-ttd={seconds}"], **more})


@asynccontextmanager
async def asked(listening, dial, message, **settings):
    """A device that has asked, and is reachable."""
    port, commands = MemoryPort(), MemoryCommands()
    async with listening(port, commands, **settings) as listener:
        with dial(listener) as wire:
            wire.send(message)
            await commands.until(lambda: "lamp-1" in commands.devices, "the device is reachable")
            yield wire, commands, port, listener


async def received(wire, mid=1):
    """The empty acknowledgement and the command, acknowledged."""
    assert await wire.receive() == CoapMessage(MessageType.ACK, Code.EMPTY, mid)
    command = await wire.receive()
    wire.send(CoapMessage(MessageType.ACK, Code.EMPTY, command.mid))
    return command


async def test_a_device_that_asks_gets_a_command_and_answers_it(listening, dial):
    async with asked(listening, dial, ask()) as (wire, commands, port, _):
        assert port.arrivals[0].ttd_s == 60
        commands.send(make_command())
        command = await received(wire)
        assert (command.kind, command.code, command.token, command.payload) == (
            MessageType.CON,
            Code.CHANGED,
            b"t",
            b'{"on":true}',
        )
        path = [(int(Option.LOCATION_PATH), each) for each in (b"command_response", b"acme", b"lamp-1", b"CMD-1")]
        assert command.options == (*path, content_format(50), (Option.LOCATION_QUERY, b"hono-command=switch"))
        assert "lamp-1" not in commands.devices
        await commands.until(lambda: commands.told == [("taken", "CMD-1")], "it is taken")
        path = "command_response/acme/lamp-1/CMD-1"
        answer = request(path, b"[1]", mid=2, query=["hono-cmd-status=200"], options=[content_format(50)])
        assert (await wire.ask(answer)).code == Code.CHANGED
        assert commands.answers == {"CMD-1": Reply(200, b"[1]", "application/json")}
        answer = request("command_response//lamp-1/CMD-2", b"", mid=3, query=["hono-cmd-status=200"])
        assert (await wire.ask(answer)).code == Code.NOT_FOUND
        assert (await wire.ask(request(path, mid=4))).code == Code.BAD_REQUEST


async def test_a_device_with_blanks_in_its_name_gets_a_command_and_answers_under_that_name(listening, dial):
    """G14."""
    port, commands = MemoryPort(), MemoryCommands()
    device = "Wohnzimmer:20Lampe"
    async with listening(port, commands) as listener:
        with dial(listener) as wire:
            wire.send(request("telemetry//Wohnzimmer Lampe", query=["hono-ttd=60"]))
            await commands.until(lambda: device in commands.devices, "the device is reachable")
            assert port.arrivals[0].device == device
            commands.send(make_command(device=device))
            path = [value for option, value in (await received(wire)).options if option == Option.LOCATION_PATH]
            assert path == [b"command_response", b"acme", b"Wohnzimmer Lampe", b"CMD-1"]
            commands.known["CMD-1"] = device
            answer = request("/".join(each.decode() for each in path), b"[1]", mid=2, query=["hono-cmd-status=200"])
            assert (await wire.ask(answer)).code == Code.CHANGED
    assert commands.answers["CMD-1"].data == b"[1]"


async def test_a_command_without_a_reply_says_no_location(listening, dial):
    async with asked(listening, dial, ask()) as (wire, commands, _, _):
        commands.send(make_command(reply=False, content_type=None, data=b""))
        assert (await received(wire)).options == ((Option.LOCATION_QUERY, b"hono-command=switch"),)


async def test_a_non_confirmable_ask_gets_a_confirmable_command(listening, dial):
    async with asked(listening, dial, ask(kind=MessageType.NON)) as (wire, commands, _, _):
        commands.send(make_command())
        command = await wire.receive()
        assert command.kind == MessageType.CON
        wire.send(CoapMessage(MessageType.ACK, Code.EMPTY, command.mid))
        await commands.until(lambda: commands.told == [("taken", "CMD-1")], "it is taken")


async def test_without_a_command_the_answer_comes_at_the_end_of_the_time(listening, dial):
    async with asked(listening, dial, ask(seconds=1)) as (wire, commands, _, _):
        assert await wire.receive() == CoapMessage(MessageType.ACK, Code.EMPTY, 1)
        plain = await wire.receive()
        assert (plain.kind, plain.code, plain.options, plain.payload) == (MessageType.CON, Code.CHANGED, (), b"")
        await commands.until(lambda: not commands.devices, "the device is unreachable")


async def test_an_ask_that_comes_again_gets_no_second_command(listening, dial):
    async with asked(listening, dial, ask(), max_exchanges=1) as (wire, commands, port, _):
        commands.send(make_command())
        await received(wire)
        wire.send(request(mid=9), ask())
        assert (await wire.receive()).mid == 9
        assert await wire.receive() == CoapMessage(MessageType.ACK, Code.CHANGED, 1, b"t")
        assert port.receipts == [Receipt.STORED, Receipt.STORED, Receipt.DUPLICATE]
        assert not commands.devices


async def test_a_new_ask_takes_the_place_of_the_former_one(listening, dial):
    async with asked(listening, dial, ask()) as (wire, commands, _, _):
        wire.send(ask(mid=2))
        assert await wire.receive() == CoapMessage(MessageType.ACK, Code.CHANGED, 1, b"t")
        commands.send(make_command())
        assert (await received(wire, 2)).payload == b'{"on":true}'


async def test_a_command_that_is_not_acknowledged_is_lost(listening, dial):
    async with asked(listening, dial, ask(), ack_timeout_s=0.001) as (_, commands, _, _):
        commands.send(make_command())
        await commands.until(lambda: commands.told == [("lost", "CMD-1")], "it is lost")


async def test_a_command_that_is_reset_is_lost(listening, dial):
    """A client may have ended its poll before, or reset a duplicate of a command that it has executed, as aiocoap does."""
    async with asked(listening, dial, ask()) as (wire, commands, _, _):
        commands.send(make_command())
        await wire.receive()
        wire.send(CoapMessage(MessageType.RST, Code.EMPTY, (await wire.receive()).mid))
        await commands.until(lambda: commands.told == [("lost", "CMD-1")], "it is lost")


async def test_a_command_that_is_abandoned_is_not_sent_again(listening, dial):
    async with asked(listening, dial, ask()) as (wire, commands, _, listener):
        executor = commands.devices["lamp-1"]
        commands.send(make_command())
        executor.abandon(make_command())
        await wire.receive()
        await wire.receive()
        pass_time(3)
        await wire.alive()
        assert commands.told == []
        assert listener.counters.undelivered == 0


@pytest.mark.parametrize("more", [{}, {"options": [(Option.BLOCK2, b"\x01")]}, {"options": [(Option.ACCEPT, b"\x3c")]}])
async def test_a_command_that_does_not_fit_is_refused_and_the_device_goes_on_waiting(listening, dial, more):
    async with asked(listening, dial, ask(**more)) as (_, commands, _, _):
        commands.send(make_command(data=b"x" * 1025))
        assert commands.told == [("refused", "CMD-1")]
        assert "lamp-1" in commands.devices


async def test_device_that_does_not_wait_gets_no_command(listening, dial):
    async with asked(listening, dial, ask()) as (_, commands, _, _):
        executor = commands.devices["lamp-1"]
        executor.execute(make_command("lamp-2"))
        assert commands.told == [("not_sent", "CMD-1")]


async def test_only_so_many_may_wait(listening, dial):
    async with asked(listening, dial, ask(), max_asks=1) as (_, commands, _, listener):
        with dial(listener) as other:
            response = await other.ask(request("t//lamp-2", query=["hono-ttd=60"]))
        assert response.code == Code.CHANGED
        assert set(commands.devices) == {"lamp-1"}
        assert listener.counters.asks_over_limit == 1


async def test_a_command_waits_while_too_many_responses_are_not_acknowledged(listening, dial, monkeypatch):
    monkeypatch.setattr(message_layer, "MAX_SEPARATE", 1)
    async with asked(listening, dial, ask()) as (wire, commands, _, listener):
        with dial(listener) as other:
            other.send(request("t//lamp-2", query=["hono-ttd=60"]))
            await commands.until(lambda: "lamp-2" in commands.devices, "the other device is reachable")
            commands.send(make_command("lamp-2"))
            assert await wire.receive() == CoapMessage(MessageType.ACK, Code.EMPTY, 1)
            commands.devices["lamp-1"].execute(make_command("lamp-1", id="CMD-2"))
            assert ("not_sent", "CMD-2") in commands.told


async def test_waiting_requests_are_answered_at_shutdown_and_messages_in_flight_are_lost(listening, dial):
    async with asked(listening, dial, ask()) as (_, commands, _, listener):
        with dial(listener) as other:
            other.send(request("t//lamp-2", query=["hono-ttd=60"]))
            await commands.until(lambda: "lamp-2" in commands.devices, "both are reachable")
            commands.send(make_command())
            await listener.close()
            assert (await other.receive()).code == Code.CHANGED
        assert commands.told == [("lost", "CMD-1")]
        assert not commands.devices


async def test_without_a_downlink_no_device_waits(listening, dial):
    port = MemoryPort()
    async with listening(port) as listener:
        with dial(listener) as wire:
            assert (await wire.ask(ask())).code == Code.CHANGED
    assert port.arrivals[0].ttd_s is None


# --- devices that serve


class Lamp(resource.Resource):
    """A device that answers each command in the same way."""

    def __init__(self, code=aiocoap.CHANGED, payload=b"", number=None):
        super().__init__()
        self.answer = code, payload, number
        self.got = []

    async def render_post(self, request):
        code, payload, number = self.answer
        content_format = request.opt.content_format
        self.got.append((request.payload, None if content_format is None else int(content_format)))
        return aiocoap.Message(code=code, payload=payload, content_format=number)


@asynccontextmanager
async def serving_device(free_port, lamp):
    site = resource.Site()
    site.add_resource(["do", "switch"], lamp)
    context = await aiocoap.Context.create_server_context(
        site, bind=("127.0.0.1", free_port), transports=["simplesocketserver"]
    )
    try:
        yield f"coap://127.0.0.1:{free_port}/do"
    finally:
        await context.shutdown()


@pytest.fixture
def free_port():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as raw:
        raw.bind(("127.0.0.1", 0))
        return raw.getsockname()[1]


@asynccontextmanager
async def commanding(listening, uri, **settings):
    commands = MemoryCommands()
    async with listening(MemoryPort(), commands, devices=[ServingSettings(device="lamp-1", uri=uri)], **settings):
        assert "lamp-1" in commands.devices
        yield commands


@pytest.mark.parametrize(
    ("lamp", "answer"),
    [
        (Lamp(), Reply(204)),
        (Lamp(aiocoap.CONTENT, b"{}", 50), Reply(205, b"{}", "application/json")),
        (Lamp(aiocoap.CONTENT, b"x" * 5000), Reply(205, b"x" * 5000, "application/octet-stream")),
        (Lamp(aiocoap.NOT_FOUND, b"no"), Reply(404, b"no", "application/octet-stream")),
        (Lamp(aiocoap.SERVICE_UNAVAILABLE), Reply(503)),
    ],
    ids=["2.04", "JSON", "in blocks", "4.04", "5.03"],
)
async def test_a_device_that_serves_gets_a_command_and_its_response_is_the_answer(listening, free_port, lamp, answer):
    data = b"[" + b" " * 3000 + b"]"
    async with serving_device(free_port, lamp) as uri, commanding(listening, uri) as commands:
        commands.send(make_command(data=data))
        await commands.until(lambda: "CMD-1" in commands.answers, "it is answered")
    assert commands.answers == {"CMD-1": answer}
    assert lamp.got == [(data, 50)]


async def test_a_command_without_a_reply_is_taken_with_the_response(listening, free_port):
    async with serving_device(free_port, Lamp()) as uri, commanding(listening, uri) as commands:
        commands.send(make_command(reply=False))
        await commands.until(lambda: commands.told == [("taken", "CMD-1")], "it is taken")


@pytest.mark.parametrize("host", ["127.0.0.1:{}", "no-such-host.invalid"])
async def test_a_device_that_is_not_there_was_sent_nothing_and_is_tried_later(listening, free_port, monkeypatch, host):
    monkeypatch.setattr(command_client, "_FIRST_PAUSE_S", 0.01)
    async with commanding(listening, f"coap://{host.format(free_port)}") as commands:
        commands.send(make_command())
        await commands.until(lambda: commands.told == [("not_sent", "CMD-1")], "it is not sent")
        await commands.until(lambda: "lamp-1" in commands.devices, "it is tried again")


async def test_reconnected_device_gets_commands_that_were_not_sent(listening, free_port, monkeypatch):
    monkeypatch.setattr(command_client, "_FIRST_PAUSE_S", 0.01)
    async with commanding(listening, f"coap://127.0.0.1:{free_port}/do") as commands:
        commands.send(make_command())
        await commands.until(lambda: commands.told == [("not_sent", "CMD-1")], "it is not sent")
        async with serving_device(free_port, Lamp()):
            await commands.until(lambda: "lamp-1" in commands.devices, "it is tried again")
            commands.send(make_command())
            await commands.until(lambda: "CMD-1" in commands.answers, "it is answered")


async def test_without_a_response_a_command_is_lost(listening, dial, free_port):
    silent = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    silent.bind(("127.0.0.1", free_port))
    async with commanding(listening, f"coap://127.0.0.1:{free_port}", ack_timeout_s=0.001) as commands:
        commands.send(make_command())
        await commands.until(lambda: commands.told == [("lost", "CMD-1")], "it is lost")
        assert not commands.devices
    silent.close()


async def test_a_response_that_is_promised_and_never_comes_is_waited_for_so_long(listening, free_port):
    deaf = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    deaf.setblocking(False)
    deaf.bind(("127.0.0.1", free_port))
    async with commanding(listening, f"coap://127.0.0.1:{free_port}", command_timeout_s=0.1) as commands:
        commands.send(make_command())
        async with asyncio.timeout(LIMIT_S):
            data, gateway = await asyncio.get_running_loop().sock_recvfrom(deaf, 2000)
        deaf.sendto(bytes((0x60, 0)) + data[2:4], gateway)
        await commands.until(lambda: commands.told == [("lost", "CMD-1")], "it is lost")
    deaf.close()


async def test_a_command_under_way_at_the_end_is_lost(listening, free_port):
    silent = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    silent.setblocking(False)
    silent.bind(("127.0.0.1", free_port))
    async with commanding(listening, f"coap://127.0.0.1:{free_port}") as commands:
        commands.send(make_command())
        async with asyncio.timeout(LIMIT_S):
            await asyncio.get_running_loop().sock_recv(silent, 2000)
    assert commands.told == [("lost", "CMD-1")]
    silent.close()


@pytest.mark.parametrize("uri", ["coaps://x", "http://x", "coap://", "x", "coap://x/?a"])
async def test_a_uri_that_is_none_is_a_mistake_of_the_settings(uri):
    settings = CoapSettings(port=0, devices=[ServingSettings(device="d", uri=uri)])
    with pytest.raises(Misconfigured, match=r"coap\.devices"):
        await CoapListener(MemoryPort(), settings, MemoryCommands()).start()
