"""A device that speaks HTTP to a gateway of this process."""

from contextlib import asynccontextmanager

import httpx

from fogline.process.rates import DeviceRates
from fogline_edge.adapters.http.listener import HttpListener
from fogline_edge.settings import HttpSettings

LIMIT_S = 60


@asynccontextmanager
async def http_device(outbox, downlink):
    listener = HttpListener(outbox.port, HttpSettings(port=0), DeviceRates(1000, 1000), downlink)
    await listener.start()
    host, port = listener.addresses["http"]
    try:
        async with httpx.AsyncClient(base_url=f"http://{host}:{port}", timeout=LIMIT_S) as client:
            yield client
    finally:
        await listener.close()
