"""What tests of the listener send and wait for."""

import asyncio

from fogline_edge.adapters.mqtt.protocol.packets import Ack, Publish
from fogline_edge.adapters.mqtt.protocol.primitives import PacketType

LIMIT_S = 20.0


def puback(number, code=0):
    return Ack(kind=PacketType.PUBACK, packet_id=number, code=code)


def publishes(numbers, topic="t"):
    return [Publish(topic=topic, payload=b"%d" % each, qos=1, packet_id=each) for each in numbers]


async def eventually(condition, what):
    """Let the loop turn until `condition` holds."""
    try:
        async with asyncio.timeout(LIMIT_S):
            while not condition():  # noqa: ASYNC110 (a counter has no event)
                await asyncio.sleep(0.001)
    except TimeoutError:
        raise AssertionError(f"not within {LIMIT_S} s: {what}") from None


async def gone(reader):
    async with asyncio.timeout(LIMIT_S):
        try:
            return await reader.read() == b""
        except ConnectionError:
            return True
