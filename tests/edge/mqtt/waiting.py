"""What tests of the listener send and wait for."""

import asyncio

from fogline_edge.adapters.mqtt.protocol.packets import Publish

LIMIT_S = 60.0


def publishes(numbers, topic="t"):
    return [Publish(topic=topic, payload=b"%d" % each, qos=1, packet_id=each) for each in numbers]


async def gone(reader):
    async with asyncio.timeout(LIMIT_S):
        try:
            return await reader.read() == b""
        except ConnectionError:
            return True
