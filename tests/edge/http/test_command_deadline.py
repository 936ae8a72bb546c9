"""A command that waits in the socket of a device at its deadline never reaches the device."""

import asyncio
import socket
from contextlib import asynccontextmanager

import pytest

from edge.http.client import request
from fogline.commands.command import Deadline
from fogline_edge.machine.boot import beacon
from fogline_lab.commands import MemoryCommands, make_command
from fogline_lab.port import MemoryPort

LIMIT_S = 60.0
END = b"the end of the command"


def make(in_ms=60_000):
    now = beacon()
    data = bytes(500_000) + END  # more than the kernel's buffers hold
    return make_command(data=data, deadline=Deadline(now.boot_id, now.boottime_ms + in_ms))


def slow_socket(address):
    """A client whose kernel takes few bytes while the client does not read."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(address)
    client.settimeout(LIMIT_S)
    return client


def all_that_comes(client):
    found = b""
    try:
        while data := client.recv(65_536):
            found += data
    except ConnectionError:
        pass
    return found


@asynccontextmanager
async def polling(listening):
    """A device that polls, and then does not read."""
    commands = MemoryCommands()
    async with listening(MemoryPort(), commands) as listener:
        client = await asyncio.to_thread(slow_socket, listener.addresses["http"])
        client.sendall(request("/telemetry/acme/lamp-1?hono-ttd=60"))
        await commands.until(lambda: "lamp-1" in commands.devices, "the device polls")
        try:
            yield client, commands, commands.devices["lamp-1"], listener
        finally:
            client.close()


async def closed(listener):
    async with asyncio.timeout(LIMIT_S):
        while listener.counters.connected:  # noqa: ASYNC110 - a counter gives no event
            await asyncio.sleep(0.005)


@pytest.mark.fault("X8")
async def test_at_the_deadline_the_bytes_that_wait_on_a_stalled_line_are_discarded(listening):
    async with polling(listening) as (client, commands, executor, listener):
        late = make()
        commands.send(late)
        executor.abandon(late)
        await closed(listener)
        assert END not in await asyncio.to_thread(all_that_comes, client)
        assert commands.told == []


@pytest.mark.fault("X8")
async def test_the_kernel_discards_them_too_so_that_a_gateway_that_ended_sends_nothing_late(listening, monkeypatch):
    monkeypatch.setattr("fogline_edge.adapters.http.connection.COMMAND_READ_S", LIMIT_S)
    async with polling(listening) as (client, commands, _, listener):
        commands.send(make(in_ms=1500))
        await commands.until(lambda: commands.told == [("lost", "CMD-1")], "the kernel ends the connection", LIMIT_S)
        await closed(listener)
        assert END not in await asyncio.to_thread(all_that_comes, client)


async def test_a_command_past_its_deadline_is_not_sent_and_the_poll_goes_on(listening):
    async with polling(listening) as (_, commands, _, _):
        commands.send(make(in_ms=0))
        assert commands.told == [("not_sent", "CMD-1")]
        assert "lamp-1" in commands.devices
