"""The gateway is killed while a large body comes, and around the commit of its event; the device sends the body again."""

import asyncio
import signal

import httpx
import pytest

from chaos.places_to_crash import BODY_POINTS
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.settings import load
from fogline_lab.gateway.gateway_process import SETTINGS
from fogline_lab.gateway.outbox_use import bodies as stored_events
from fogline_lab.large_bodies import JoinedBodies, join_bodies, make_body
from fogline_lab.supervisor import ChildProcess, find_script, kill_child, start_child, stop_children

LIMIT_S = 60.0
SIZE = 1024 * 1024
HEADERS = {"idempotency-key": "boot7-1", "content-type": "image/jpeg"}


@pytest.fixture
def gateway(folder):
    config = folder / "edge.toml"
    config.write_text(SETTINGS.format(data=folder / "data", bridge=1, name="gw-1", tenant="acme").replace("[mqtt]", "[http]"))
    return ChildProcess("gateway", [find_script("fogline-edge"), "run", "--insecure-dev", "--config", config], folder / "log")


async def send(address: str, content) -> int:
    async with httpx.AsyncClient(timeout=LIMIT_S) as client:
        return (await client.post(f"http://{address}/telemetry//camera-1", headers=HEADERS, content=content)).status_code


async def read_bodies(folder) -> JoinedBodies:
    outbox = Outbox.open(load(folder / "edge.toml"))
    try:
        return join_bodies(
            [event for each in await outbox.streams.pending() for event in await stored_events(outbox, each.stream)]
        )
    finally:
        await outbox.close()


@pytest.mark.fault("C1", "C2")
@pytest.mark.parametrize("point", BODY_POINTS)
async def test_large_body_without_a_response_is_stored_once_and_no_chunk_is_left_without_an_end(folder, gateway, point):
    body = make_body(1, SIZE)
    try:
        address = (await start_child(gateway, LIMIT_S, crash_at=point))["http"]
        with pytest.raises(httpx.TransportError):
            await send(address, body)
        assert await asyncio.to_thread(gateway.wait, LIMIT_S) == -signal.SIGKILL
        address = (await start_child(gateway, LIMIT_S))["http"]
        assert [await send(address, body) for _ in range(2)] == [202, 202]
    finally:
        await stop_children(gateway)
    joined = await read_bodies(folder)
    assert [data for _, data in joined.whole] == [body]
    assert (joined.broken, joined.open) == ([], set())


@pytest.mark.fault("C21")
async def test_gateway_killed_in_the_middle_of_a_body_ends_it_and_stores_the_resend(folder, gateway):
    body, half_sent = make_body(2, SIZE), asyncio.Event()

    async def halves():
        yield body[: SIZE // 2]
        half_sent.set()
        await asyncio.sleep(LIMIT_S)

    try:
        sending = asyncio.create_task(send((await start_child(gateway, LIMIT_S))["http"], halves()))
        await half_sent.wait()
        await kill_child(gateway)
        with pytest.raises(httpx.TransportError):
            await sending
        assert await send((await start_child(gateway, LIMIT_S))["http"], body) == 202
    finally:
        await stop_children(gateway)
    joined = await read_bodies(folder)
    assert [data for _, data in joined.whole] == [body]
    assert (joined.broken, joined.open) == ([], set())
