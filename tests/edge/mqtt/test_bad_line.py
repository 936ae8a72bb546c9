"""Real paho clients, connections cut in mid-packet, gateway restarts: an acknowledged message is stored exactly once."""

import asyncio
import threading
from contextlib import asynccontextmanager
from math import inf
from random import Random

import pytest
from paho.mqtt.client import Client, MQTTv5, MQTTv311
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from fogline.events.codec import decode_event
from fogline_edge.outbox.file.schema import open_database
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.outbox.rows.stored_body import unpack_body
from fogline_edge.settings import EdgeSettings
from fogline_lab.amqp import within
from fogline_lab.tcp_line import LineFault, PlannedFault, TcpLine, no_fault

COUNT = 150
LIMIT_S = 60.0


class Publisher:
    """A client with a session that lasts; it publishes everything at once, and connects again whenever it has to."""

    def __init__(self, port: int, version: int, qos: int):
        self.acknowledged: set[int] = set()
        self.all = threading.Event()
        self._numbers: dict[int, int] = {}
        self._qos = qos
        clean = None if version == MQTTv5 else False
        self._client = Client(CallbackAPIVersion.VERSION2, client_id=f"d{version}-{qos}", protocol=version, clean_session=clean)
        self._client.on_publish = self._on_publish
        self._client.max_inflight_messages_set(20)
        self._client.reconnect_delay_set(1, 1)
        more = {}
        if version == MQTTv5:
            more["properties"] = Properties(PacketTypes.CONNECT)
            more["properties"].SessionExpiryInterval = 3600
            more["clean_start"] = False
        self._client.connect_async("127.0.0.1", port, keepalive=30, **more)

    def start(self):
        for number in range(COUNT):
            body = b"%d " % number + b"x" * 200
            self._numbers[self._client.publish("telemetry", body, qos=self._qos).mid] = number
        self._client.loop_start()

    def _on_publish(self, _client, _userdata, mid, _code, _properties):
        self.acknowledged.add(self._numbers[mid])
        if len(self.acknowledged) == COUNT:
            self.all.set()

    def stop(self):
        self._client.disconnect()
        self._client.loop_stop()


@pytest.mark.parametrize("version", [MQTTv311, MQTTv5])
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.fault("D1")
async def test_acknowledged_messages_on_a_cut_line_are_stored_once(folder, listening, version, qos):
    settings = EdgeSettings(tenant="acme", gateway="gw-1", data=str(folder))

    @asynccontextmanager
    async def gateway():
        outbox = Outbox.open(settings)
        try:
            async with listening(outbox.port) as listener:
                yield listener
        finally:
            await outbox.close()

    chance = Random(f"{version}/{qos}")

    def plan():
        return PlannedFault(LineFault.RESET, chance.randint(300, 12_000), inf)

    async with TcpLine(1, plan, piece_bytes=2000) as line:
        publisher = Publisher(line.port, version, qos)

        async def cut(times: int) -> None:
            while len(line.failed) < times:  # noqa: ASYNC110 - the line gives no event
                await asyncio.sleep(0.01)

        publisher.start()
        try:
            for cuts in (1, 3):
                async with gateway() as listener:
                    line.target = listener.addresses["mqtt"][1]
                    await within(cut(cuts), "the line is not cut", LIMIT_S)
            async with gateway() as listener:
                line.target = listener.addresses["mqtt"][1]
                line.plan = no_fault
                done = await asyncio.to_thread(publisher.all.wait, LIMIT_S)
                assert done, f"only {len(publisher.acknowledged)} of {COUNT} were acknowledged"
        finally:
            await asyncio.to_thread(publisher.stop)
    reader = open_database(folder / "outbox.db", 1_000_000_000)
    events = [decode_event(unpack_body(body)) for (body,) in reader.execute("SELECT body FROM event ORDER BY place")]
    reader.close()
    stored = [int(each.data.split()[0]) for each in events if each.type == "telemetry"]
    assert sorted(stored) == list(range(COUNT))
    assert len(line.failed) >= 3
