"""Failed attempts to reach the bridge and the garbage collector."""

import asyncio
import gc
import weakref
from functools import partial

import pytest

from fogline.amqp.backoff import Backoff
from fogline.errors import SlowDown, Unreachable
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.settings import EdgeSettings, UplinkSettings
from fogline_edge.uplink import uplink as module
from fogline_edge.uplink.session import Redirect
from fogline_edge.uplink.uplink import Uplink
from fogline_lab.amqp import within


@pytest.mark.fault("N1")
@pytest.mark.parametrize(("enough", "expected"), [(5, 0), (module.ATTEMPTS_A_COLLECTION + 1, 1)])
async def test_failed_attempts_seldom_age_the_objects_of_devices_connections(tmp_path, enough, expected):
    """A collection makes everything that is in use old; without any, the garbage of attempts grows to some 25 MB."""
    attempts, tried = 0, asyncio.Event()

    async def refuse(reader, writer):
        nonlocal attempts
        attempts += 1
        writer.close()
        if attempts > enough:
            tried.set()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    uplink = UplinkSettings(bridge=f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
    outbox = Outbox.open(EdgeSettings(tenant="acme", gateway="gw-1", data=str(tmp_path), uplink=uplink))
    collections = []
    gc.disable()
    gc.callbacks.append(lambda *said: collections.append(said))
    try:
        task = asyncio.create_task(Uplink(outbox, uplink, lambda *_: None, Backoff(base_s=0.01, cap_s=0.02)).run())
        await within(tried.wait(), "the uplink does not try again")
    finally:
        gc.callbacks.pop()
        gc.enable()
    task.cancel()
    await asyncio.wait({task})
    await outbox.close()
    server.close()
    assert [phase for phase, _ in collections].count("stop") == expected


@pytest.mark.fault("N1")
@pytest.mark.parametrize(
    "end", [partial(Unreachable, "away"), partial(SlowDown, "later"), partial(Redirect, "elsewhere", "127.0.0.1:2")]
)
async def test_attempt_that_fails_leaves_nothing_to_the_garbage_collector(monkeypatch, end):
    made = []

    class Refused:
        welcomed = False

        def __init__(self, *_, **__):
            made.append(weakref.ref(self))

        async def run(self):
            raise end()

    monkeypatch.setattr(module, "BridgeSession", Refused)
    uplink = Uplink(None, UplinkSettings(), None)
    gc.disable()
    try:
        await uplink._serve("127.0.0.1:1")
        assert made[0]() is None
    finally:
        gc.enable()
