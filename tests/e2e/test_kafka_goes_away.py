"""Kafka is killed under load and comes back: nothing is lost, nothing lands twice."""

import pytest

from e2e.test_line import Line
from fogline.testing.kafka_broker import KafkaBroker
from fogline_cloud.kafka import KafkaClients
from fogline_cloud.provision import create_topics
from fogline_cloud.settings import Settings


@pytest.mark.timeout(240)
async def test_kafka_is_killed_and_comes_back(folder, tenant):
    with KafkaBroker(folder / "kafka") as broker:
        settings = Settings(tenant=tenant, kafka={"bootstrap.servers": broker.bootstrap}, shards=2)
        create_topics(KafkaClients(settings.kafka), settings, 1)
        line = Line(tenant, folder, settings)
        async with line.bridge(), line.gateway() as outbox:
            await line.put(outbox, *range(500))
            broker.kill()
            await line.put(outbox, *range(500, 1000))
            broker.start()
            await line.put(outbox, *range(1000, 1500))
            await line.drained(outbox)
        assert line.landed() == list(range(1500))
