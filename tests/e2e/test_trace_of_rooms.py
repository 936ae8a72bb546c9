"""Traces a PUBLISH and a command over HTTP through the rooms of the product, and prints how often a call returns from another.

The numbers are for people who move walls: run it before and after. `pytest -s tests/e2e/test_trace_of_rooms.py` shows them.
"""

import sys
import threading
from collections import Counter
from types import FrameType
from typing import Any, Self

from e2e.http_api import COMMANDS, SWITCH, served
from fogline_edge.adapters.mqtt.server.listener import MqttListener
from fogline_edge.settings import MqttSettings
from fogline_lab.amqp import within
from fogline_lab.device.command_device import CommandDevice
from fogline_lab.device.mqtt_lamp import MqttLamp
from fogline_lab.gateway.connected_gateway import offline_gateway

PRODUCT = ("fogline", "fogline_edge", "fogline_cloud")


class RoomTrace:
    """Counts, in all threads, the returns from a function of one room to a function of another. A room is a package."""

    def __init__(self) -> None:
        self.returns: Counter[tuple[str, str]] = Counter()

    def __enter__(self) -> Self:
        threading.setprofile(self._on_event)
        sys.setprofile(self._on_event)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _on_event(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "return" and frame.f_back is not None:
            here, there = _room(frame), _room(frame.f_back)
            if here and there and here != there:
                self.returns[here, there] += 1

    def show(self, what: str) -> None:
        """Print the sums, and each pair of rooms."""
        rooms = {room for pair in self.returns for room in pair}
        print(f"{what}: {self.returns.total()} returns between {len(rooms)} rooms")
        for (here, there), count in self.returns.most_common():
            print(f"  {count:5} {here} -> {there}")


def _room(frame: FrameType) -> str:
    names = str(frame.f_globals.get("__name__", "")).split(".")
    return ".".join(names[:2]) if names[0] in PRODUCT else ""


async def test_a_publish_is_traced_through_the_rooms(folder):
    with RoomTrace() as trace:  # the writer's thread begins within
        async with offline_gateway(folder) as gw:
            listener = MqttListener(gw.outbox.port, MqttSettings(port=0), gw.downlink)
            await listener.start()
            lamp = MqttLamp()
            try:
                await lamp.connect(listener.addresses["mqtt"][1])
                await lamp.publish("telemetry", b"1")
                trace.returns.clear()
                await within(lamp.publish("telemetry", b"2"), "no PUBACK")
                trace.show("a PUBLISH at QoS 1")
                assert trace.returns
            finally:
                await lamp.close()
                await listener.close()


async def test_a_command_over_http_is_traced_through_the_rooms(line):
    with RoomTrace() as trace:
        async with served(line) as (found, downlink, *_):
            downlink.reachable("lamp-1", CommandDevice(downlink))
            trace.returns.clear()
            created = await found.http.post(COMMANDS, params={"wait": "30s"}, json=SWITCH)
            trace.show("a command over HTTP")
            assert created.json()["state"] == "SUCCEEDED"
            assert trace.returns
