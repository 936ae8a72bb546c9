"""How long an event takes where there is no hurry: 200 a second, to its PUBACK and to the AMQP peer."""

import asyncio
import time

from device import Device
from processes import Bench, Child, Failed, quantile

RATE = 200
SECONDS = 10
DEVICES = 8
LIMIT_S = 30.0


def measure(bench: Bench) -> dict[str, float]:
    """p50 and p99 of both, in milliseconds."""
    with (
        bench.child("null_peer", *bench.program("null_peer")) as peer,
        bench.gateway("gw-calm", peer.line()["port"]) as (_, mqtt_port),
    ):
        puback_s = asyncio.run(asyncio.wait_for(publish(mqtt_port), SECONDS + LIMIT_S))
        arrival_s = arrivals(peer)
    return {
        f"latency.{what}_p{percent}": quantile(values, percent / 100) * 1000
        for what, values in (("puback", puback_s), ("arrival", arrival_s))
        for percent in (50, 99)
    }


def arrivals(peer: Child) -> list[float]:
    """Seconds that each event took to the peer, when all have come."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        peer.tell("arrivals")
        if len(found := peer.line()) == RATE * SECONDS:
            return [(came - sent) / 1e9 for sent, came in found]
        time.sleep(0.1)
    raise Failed(f"the peer got {len(found)} of {RATE * SECONDS} events in {LIMIT_S:.0f} s")


async def publish(port: int) -> list[float]:
    """Publish at the rate; returns the seconds to each PUBACK."""
    devices = [Device() for _ in range(DEVICES)]
    for number, device in enumerate(devices):
        await device.connect(port, f"calm-{number}")
    began = time.monotonic()
    waiting = []
    for n in range(RATE * SECONDS):
        await asyncio.sleep(max(0.0, began + n / RATE - time.monotonic()))
        payload = b'{"n": %d, "temperature": 21.5, "sent_ns": %d}' % (n, time.monotonic_ns())
        waiting.append(devices[n % DEVICES].publish("telemetry", payload))
    await asyncio.gather(*waiting)
    for device in devices:
        await device.close()
    return [seconds for device in devices for seconds in device.puback_s]
