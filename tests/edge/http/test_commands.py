"""Commands in the response to a report, and the replies of devices."""

import contextlib
import socket
import struct
from contextlib import asynccontextmanager

import pytest

from edge.http.client import request
from fogline.commands.command import Reply
from fogline_edge.adapters.http.connection import COMMAND_READ_S
from fogline_lab.clock import pass_time
from fogline_lab.commands import MemoryCommands, make_command
from fogline_lab.port import MemoryPort


def ask(seconds=60, path="/telemetry/acme/lamp-1", **more):
    return request(f"{path}?hono-ttd={seconds}", **more)


@asynccontextmanager
async def asked(listening, dial, message=None, **settings):
    """A device that has asked, and is reachable."""
    port, commands = MemoryPort(), MemoryCommands()
    async with listening(port, commands, **settings) as listener, dial(listener) as talker:
        talker.send(message or ask())
        await commands.until(lambda: "lamp-1" in commands.devices, "the device is reachable")
        yield talker, commands, port, listener


@pytest.mark.parametrize("message", [ask(), request("/event//lamp-1", hono_ttd="60")], ids=["query", "header"])
async def test_a_device_that_asks_gets_a_command_and_answers_it(listening, dial, message):
    async with asked(listening, dial, message) as (talker, commands, port, listener):
        assert port.arrivals[0].ttd_s == 60
        commands.send(make_command())
        response = await talker.receive()
        assert (response.status, response.body) == (200, b'{"on":true}')
        kept = {name: response.headers[name] for name in ("hono-command", "hono-cmd-req-id", "content-type", "connection")}
        assert kept == {
            "hono-command": "switch",
            "hono-cmd-req-id": "CMD-1",
            "content-type": "application/json",
            "connection": "close",
        }
        assert "lamp-1" not in commands.devices
        await talker.close()
        await commands.until(lambda: commands.told == [("taken", "CMD-1")], "it is taken")
        path = "/command/res/acme/lamp-1/CMD-1"
        async with dial(listener) as other:
            answer = request(f"{path}?hono-cmd-status=200", b"[1]", content_type="application/json")
            assert (await other.ask(answer)).status == 202
            assert (await other.ask(request(path, hono_cmd_status="200", method="POST"))).status == 202
            assert (await other.ask(request("/command/res//lamp-1/CMD-2?hono-cmd-status=200"))).status == 404
            assert (await other.ask(request(f"{path}?hono-cmd-status=2000"))).status == 400
    assert commands.answers == {"CMD-1": Reply(200, b"x", "application/octet-stream")}


async def test_a_command_without_a_reply_says_no_request_id(listening, dial):
    async with asked(listening, dial) as (talker, commands, _, _):
        commands.send(make_command(reply=False, content_type="not a\r\nmedia type", data=b""))
        response = await talker.receive()
        assert response.headers["hono-command"] == "switch"
        assert not {"hono-cmd-req-id", "content-type"} & response.headers.keys()


async def test_without_a_command_the_answer_comes_at_the_end_of_the_time(listening, dial):
    async with asked(listening, dial, ask(seconds=1)) as (talker, commands, _, _):
        assert (await talker.receive()).status == 202
        await commands.until(lambda: not commands.devices, "the device is unreachable")
        assert (await talker.ask(request())).status == 202


async def test_a_new_ask_takes_the_place_of_the_former_one(listening, dial):
    async with asked(listening, dial) as (talker, commands, _, listener), dial(listener) as other:
        other.send(ask())
        assert (await talker.receive()).status == 202
        commands.send(make_command())
        assert (await other.receive()).body == b'{"on":true}'


async def test_a_device_that_leaves_is_not_reachable(listening, dial):
    async with asked(listening, dial) as (talker, commands, _, _):
        await talker.close()
        await commands.until(lambda: not commands.devices, "the device is unreachable")
        assert commands.told == []


@pytest.mark.fault("X6")
async def test_a_command_whose_connection_is_reset_is_lost(listening, dial):
    async with asked(listening, dial) as (talker, commands, _, listener):
        commands.send(make_command(data=b"x" * 100_000))
        raw = talker.writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        talker.writer.transport.abort()
        await commands.until(lambda: commands.told == [("lost", "CMD-1")], "it is lost")
        assert (listener.counters.commands, listener.counters.commands_lost) == (1, 1)


async def test_a_command_that_is_not_read_in_time_is_lost(listening, dial):
    async with asked(listening, dial) as (_, commands, _, _):
        commands.send(make_command())
        pass_time(COMMAND_READ_S)
        await commands.until(lambda: commands.told == [("lost", "CMD-1")], "it is lost")


async def test_a_connection_that_ended_before_the_command_was_written_does_not_take_it(listening, dial):
    """The end of the connection is in the socket, unread, when the command is written."""
    async with asked(listening, dial) as (talker, commands, _, _):
        executor = commands.devices["lamp-1"]
        talker.writer.get_extra_info("socket").shutdown(socket.SHUT_RDWR)
        commands.known["CMD-1"] = "lamp-1"
        executor.execute(make_command(data=b"x" * 1000))
        await commands.until(lambda: bool(commands.told), "there is an outcome")
        assert commands.told == [("lost", "CMD-1")]


async def test_a_command_that_is_abandoned_has_no_outcome(listening, dial):
    async with asked(listening, dial) as (talker, commands, _, _):
        executor = commands.devices["lamp-1"]
        commands.send(make_command())
        executor.abandon(make_command())
        with contextlib.suppress(ConnectionError):
            await talker.reader.read()
        assert commands.told == []


async def test_device_that_does_not_wait_gets_no_command(listening, dial):
    async with asked(listening, dial) as (_, commands, _, _):
        commands.devices["lamp-1"].execute(make_command("lamp-2"))
        assert commands.told == [("not_sent", "CMD-1")]


async def test_only_so_many_may_wait(listening, dial):
    async with asked(listening, dial, max_asks=1) as (_, commands, _, listener), dial(listener) as other:
        assert (await other.ask(ask(path="/t//lamp-2"))).status == 202
        assert set(commands.devices) == {"lamp-1"}
        assert listener.counters.asks_over_limit == 1


async def test_waiting_requests_are_answered_at_shutdown_and_messages_in_flight_are_lost(listening, dial):
    async with asked(listening, dial) as (_, commands, _, listener), dial(listener) as other:
        other.send(ask(path="/t//lamp-2"))
        await commands.until(lambda: "lamp-2" in commands.devices, "both are reachable")
        commands.send(make_command())
        await listener.close()
        assert (await other.receive()).status == 202
        assert commands.told == [("lost", "CMD-1")]
        assert not commands.devices


async def test_without_a_downlink_no_device_waits(listening, dial):
    port = MemoryPort()
    async with listening(port) as listener, dial(listener) as talker:
        assert (await talker.ask(ask())).status == 202
        assert (await talker.ask(request("/command/res//d1/C-1?hono-cmd-status=200"))).status == 404
    assert port.arrivals[0].ttd_s is None
