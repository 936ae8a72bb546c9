"""A fresh tenant on the broker of the run."""

import pytest

from e2e.parts import Line
from fogline_cloud.kafka import KafkaClients
from fogline_cloud.settings import CloudSettings, FlowSettings
from fogline_cloud.topic_admin import create_topics


@pytest.fixture
def line(kafka, tenant, folder, monkeypatch) -> Line:
    """A tenant on the broker. Its gateways come back soon after a bridge has no shard yet."""
    monkeypatch.setattr("fogline_cloud.bridge.gateways.RETRY_S", 0.2)
    monkeypatch.setattr("fogline_edge.uplink.uplink.REDIRECTED_S", 0.2)
    settings = CloudSettings(
        tenant=tenant, kafka={"bootstrap.servers": kafka.bootstrap}, shards=2, flow=FlowSettings(tables=str(folder / "tables"))
    )
    create_topics(KafkaClients(settings.kafka), settings, 1)
    return Line(tenant, folder, settings)
