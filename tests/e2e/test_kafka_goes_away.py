"""Kafka is killed under load and comes back: nothing is lost, nothing lands twice, and commands come to their end."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from fogline.commands.command import CommandState
from fogline_cloud.commands.client.operator import Ask, Operator
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.settings import CloudSettings
from fogline_cloud.shard.topic_admin import create_topics
from fogline_lab.amqp import within
from fogline_lab.device.command_device import CommandDevice
from fogline_lab.kafka_broker import KafkaBroker
from fogline_lab.line.line import Line, commandable


@pytest.fixture
def broker(folder):
    """One that may be killed."""
    with KafkaBroker(folder / "kafka") as broker:
        yield broker


@pytest.mark.timeout(240)
@pytest.mark.fault("K1")
async def test_kafka_is_killed_and_comes_back(broker, folder, tenant):
    """One command waits for its device when Kafka dies, others are sent while it is away; the device is back before Kafka."""
    settings = CloudSettings(tenant=tenant, kafka={"bootstrap.servers": broker.bootstrap}, shards=2)
    create_topics(KafkaClients(settings.kafka), settings, 1)
    line = Line(tenant, folder, settings)
    async with AsyncExitStack() as stack:
        _, outbox, downlink = await stack.enter_async_context(commandable(line))
        operator = await stack.enter_async_context(Operator("127.0.0.1", line.port, tenant))
        await within(operator.attached(), "the operator cannot attach")
        await line.put(outbox, *range(2, 500))
        asked = [asyncio.create_task(operator.request(Ask("lamp-1", "waits", ttl_s=120)))]
        await within(received(downlink, 1), "the gateway did not get the command")

        broker.kill()
        await line.put(outbox, *range(500, 1000))
        asked += [asyncio.create_task(operator.request(Ask("lamp-1", f"meanwhile-{n}", ttl_s=120))) for n in range(3)]
        direct = asyncio.create_task(operator.request(Ask("lamp-1", "direct", durable=False, ttl_s=120)))
        device = CommandDevice(downlink)
        downlink.reachable("lamp-1", device)
        await within(device.came.wait(), "what waited at the gateway does not need Kafka")

        broker.start()
        await line.put(outbox, *range(1000, 1500))
        verdicts = await within(asyncio.gather(*asked), "a command has no end", 120)
        await within(direct, "the direct command has no end", 120)
        await line.drained(outbox)
    assert [each.state for each in verdicts] == [CommandState.SUCCEEDED] * 4
    assert sorted(set(device.ran)) == sorted(device.ran), "a command was run twice"
    assert {each.command_id for each in verdicts} <= set(device.ran)
    assert line.landed() == list(range(1, 1500))


async def received(downlink, count):
    while downlink.counters.received < count:  # noqa: ASYNC110 - a counter gives no event
        await asyncio.sleep(0.01)
