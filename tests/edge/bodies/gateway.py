"""A gateway with an HTTP listener and an outbox on a real file."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import httpx

from fogline.events.event import Arrival, Event, Lane
from fogline.process.rates import DeviceRates
from fogline_edge.adapters.bodies.uploads import BodyUploads
from fogline_edge.adapters.coap.listener import CoapListener
from fogline_edge.adapters.http.listener import HttpListener
from fogline_edge.adapters.mqtt.server.listener import MqttListener
from fogline_edge.body_settings import BodySettings
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.rule_settings import PrivateTable
from fogline_edge.rules.private import PrivateRules
from fogline_edge.settings import CoapSettings, HttpSettings, MqttSettings
from fogline_lab.gateway.outbox_use import bodies as stored_events
from fogline_lab.gateway.outbox_use import settings

LIMIT_S = 60.0


@dataclass
class BodyGateway:
    """`address`: host and port of the listener."""

    outbox: Outbox
    uploads: BodyUploads
    listener: HttpListener
    mqtt: MqttListener
    coap: CoapListener

    @classmethod
    @contextlib.asynccontextmanager
    async def serve(
        cls, folder: Path, outbox_bytes: int, bodies: dict[str, float], private: str | None
    ) -> AsyncIterator["BodyGateway"]:
        outbox = Outbox.open(settings(folder, max_bytes=outbox_bytes))
        rules = PrivateRules([] if private is None else [PrivateTable(name="people", device=private, drop=["/name"])])
        uploads = BodyUploads(outbox.port, BodySettings(**bodies), outbox_bytes, rules.names)
        uploads.end_former()
        listener = HttpListener(outbox.port, HttpSettings(port=0), DeviceRates(1000, 10_000), bodies=uploads)
        mqtt = MqttListener(outbox.port, MqttSettings(port=0), bodies=uploads)
        await listener.start()
        many_blocks = CoapSettings(port=0, endpoint_burst=100_000, burst=100_000)
        coap = CoapListener(outbox.port, many_blocks, bodies=uploads)
        await mqtt.start()
        await coap.start()
        try:
            yield cls(outbox, uploads, listener, mqtt, coap)
        finally:
            await coap.close()
            await listener.close()
            await mqtt.close()
            await outbox.close()

    @property
    def address(self) -> str:
        return "{}:{}".format(*self.listener.addresses["http"])

    async def post(self, content, device: str = "camera-1", *, at: str = "/telemetry", **headers: str) -> httpx.Response:
        """Send a report. `content`: bytes, or an async iterator of them."""
        async with httpx.AsyncClient(timeout=LIMIT_S) as client:
            given = {name.replace("_", "-"): value for name, value in headers.items()}
            return await client.post(f"http://{self.address}{at}//{device}", content=content, headers=given)

    def event(self) -> Arrival:
        """Return an event of a camera, without data."""
        return Arrival(device="camera-1", channel="t", lane=Lane.TELEMETRY, content_type="image/jpeg", data=b"", adapter="http")

    async def stored(self) -> list[Event]:
        """Return the events of lane bulk, in the order of their sequences, with all that were put until now."""
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.outbox.port.act(lambda *_: None, written.set_result, urgent=True)
        await written
        streams = [each for each in await self.outbox.streams.pending() if each.lane is Lane.BULK]
        return [event for each in streams for event in await stored_events(self.outbox, each.stream)]
